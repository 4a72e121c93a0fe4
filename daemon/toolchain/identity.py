"""Find the compiler that a caller would get, through wrappers and links, and identify it.

An identification costs a few compiler starts and reading some 40 MB, and once torch's libraries. It
is kept for as long as every file that it came from has the same stat fingerprint, which costs
microseconds to check; a replaced compiler or an upgraded torch is therefore noticed at the next
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from warmcc import digest
from warmcc.daemon.system.trails import Paths, candidates
from warmcc.daemon.toolchain import cuda, lookups
from warmcc.daemon.toolchain.cuda import Cuda
from warmcc.daemon.toolchain.known_contents import KnownContents
from warmcc.request import Interpreter

if TYPE_CHECKING:
    from warmcc.daemon.system.sandbox import Sandbox

WRAPPERS = ("ccache", "sccache")
PARTS = ("cc1plus", "as", "collect2", "ld")  # the programs behind g++'s driver
# The program, and the option that asks for it. gold is where binutils still come with it.
FAST_LINKERS = {"ld.mold": "-fuse-ld=mold", "ld.lld": "-fuse-ld=lld", "ld.gold": "-fuse-ld=gold"}
TORCH_FILES = (
    "version.py", "lib/libtorch_python.so", "lib/libtorch_cpu.so", "lib/libc10.so",
    "lib/libtorch.so",
)  # fmt: skip
# Variables that can change which programs, headers and libraries of its own a driver uses.
_LOOKUPS = (
    "PATH", "CC", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_LIBRARY_PATH", "LIBRARY_PATH", "SDKROOT",
    "CONDA_BUILD_SYSROOT", "CUDA_HOME", "CUDA_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
)  # fmt: skip
_LIMIT = 64  # identifications kept

Fingerprint = tuple[int, int, int, int]
# What the programs that are asked are confined by: a thread that asks has its own.
_SANDBOX: ContextVar[Sandbox | None] = ContextVar("sandbox", default=None)


class MissingCompiler(Exception):
    """The compiler that stock would call is not there, or does not run; the text names it."""


@dataclass(frozen=True)
class Linker:
    """A linker.
    ``option`` makes the compiler's driver use it (empty: its own), ``says_what_it_read``: it
    has ``--dependency-file``."""

    option: str
    says_what_it_read: bool


@dataclass(frozen=True)
class Toolchain:
    """One identified toolchain.

    digest   of everything below and of the programs' content
    argv     the real compiler and the options that came with its name, without wrappers
    family   whose compiler it is; ``version`` is what it calls itself
    include_folders  where the compiler itself looks for headers, in its order
    library_folders  where it and its linker look for libraries
    assembler_tells  whether its assembler says which files it read (``--MD``)
    torch_dir  the folder of the torch package
    roots    folders whose files are the toolchain's and not the user's
    linkers  that work here, the fastest first, the compiler's own last
    cuda     the CUDA compiler, for requests that have CUDA sources; it is not part of ``digest``
    """

    digest: str
    argv: list[str]
    family: Literal["gcc", "clang", "unknown"]
    version: str
    include_folders: list[str]
    library_folders: list[str]
    assembler_tells: bool
    roots: list[str]
    torch_dir: str
    torch_version: str
    linkers: list[Linker]
    cuda: Cuda | None = None

    def owns(self, path: str) -> bool:
        """Whether a path, as it is written, lies in one of its folders."""
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self.roots)


@dataclass
class _Kept:
    toolchain: Toolchain
    # None: the file was not there
    files: dict[str, Fingerprint | None] = field(default_factory=dict)


def fingerprint(path: str) -> Fingerprint | None:
    """Size, modification, change and inode of what a path leads to; None when it leads nowhere."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


class Toolchains:
    """Identified toolchains, kept while their files do not change. ``known`` are contents of
    files."""

    def __init__(self, sandbox: Sandbox | None = None, known: KnownContents | None = None) -> None:
        self._sandbox = sandbox
        self._known = KnownContents() if known is None else known
        self._kept: dict[tuple[object, ...], _Kept] = {}
        self._lock = asyncio.Lock()

    async def identify(
        self, environment: dict[str, str], cxx: str, interpreter: Interpreter, *,
        with_cuda: bool = False,
    ) -> Toolchain:  # fmt: skip
        """The toolchain that ``cxx`` (a word, or a command) means to this caller.
        Raises MissingCompiler."""
        argv = resolve(cxx, environment.get("PATH", os.defpath))
        nvcc = cuda.nvcc(environment) if with_cuda else None
        if with_cuda and nvcc is None:
            raise MissingCompiler("nvcc was not found (CUDA_HOME, or PATH)")
        of_cpp = (
            *argv, interpreter.executable, interpreter.abi, interpreter.torch_dir,
            *(environment.get(name) for name in _LOOKUPS),
        )  # fmt: skip
        key = of_cpp if nvcc is None else (*of_cpp, nvcc)
        if (found := self._current(key)) is not None:
            return found.toolchain
        async with self._lock:
            _SANDBOX.set(self._sandbox)
            found = self._current(of_cpp) or self._keep(
                of_cpp,
                await asyncio.to_thread(_identify, argv, environment, interpreter, self._known),
            )
            if nvcc is not None:
                found = self._current(key) or self._keep(
                    key, await asyncio.to_thread(_with_cuda, found, environment, nvcc)
                )
        return found.toolchain

    def _keep(self, key: tuple[object, ...], kept: _Kept) -> _Kept:
        while len(self._kept) >= _LIMIT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = kept
        return kept

    def paths(self, toolchain: Toolchain, environment: dict[str, str], cxx: str) -> Paths:
        """The files that the identification of a toolchain rests on, and where it was searched."""
        files = {
            path
            for kept in self._kept.values()
            if kept.toolchain is toolchain
            for path in kept.files
        }
        words = ["nvcc"]
        for command in (cxx, environment.get("CC", "gcc")):
            with contextlib.suppress(ValueError):  # it is not a command then, and has no place
                words += _words(command)
        places = {
            environment[name]
            for name in ("CUDA_HOME", "CUDA_PATH", "PYTORCH_NVCC")
            if environment.get(name)
        }
        found = (
            candidates(words, environment.get("PATH", os.defpath))
            | places
            | {"/usr/local/cuda/bin/nvcc"}
        )
        return Paths(frozenset(files | {path for path in found if os.path.isabs(path)}))

    def _current(self, key: tuple[object, ...]) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        if all(fingerprint(path) == known for path, known in kept.files.items()):
            return kept
        del self._kept[key]
        return None


def _words(command: str) -> list[str]:
    """The words of a command; newer torch quotes ``ccache g++`` as one. Raises ValueError."""
    words = shlex.split(command)
    return shlex.split(words[0]) if len(words) == 1 and " " in words[0] else words


def resolve(cxx: str, path: str) -> list[str]:
    """The real compiler behind a command, without wrappers and links that masquerade as it.

    >>> resolve("ccache g++", "/usr/bin")
    ['/usr/bin/g++']
    """
    try:
        words = _words(cxx)
    except ValueError as error:
        raise MissingCompiler(f"the compiler {cxx!r} is not a command: {error}") from error
    while len(words) > 1 and os.path.basename(words[0]) in WRAPPERS:
        words = words[1:]
    if not words:
        raise MissingCompiler("the compiler's name is empty (CXX)")
    for folder in [None] if os.sep in words[0] else path.split(os.pathsep):
        candidate = shutil.which(
            words[0] if folder is None else os.path.join(folder or ".", words[0])
        )
        if candidate is not None and os.path.basename(os.path.realpath(candidate)) not in WRAPPERS:
            return [os.path.abspath(candidate), *words[1:]]
    raise MissingCompiler(f"the compiler {words[0]!r} was not found on PATH")


def _ask(
    argv: list[str], environment: dict[str, str], *options: str, folder: str | None = None
) -> str:
    """Both outputs of the compiler for some options; in a sandbox it may write ``folder``."""
    command, environment = [*argv, *options], {**environment, "LC_ALL": "C"}
    if folder is not None:
        environment["TMPDIR"] = folder
    if (sandbox := _SANDBOX.get()) is not None:
        command, environment = sandbox.command(
            command, environment, [], [] if folder is None else [folder]
        )
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingCompiler(f"the compiler {shlex.join(argv)} does not run: {error}") from error
    return done.stdout.decode("utf-8", "replace")


def _python_include(interpreter: Interpreter, environment: dict[str, str]) -> str:
    code = "import sysconfig; print(sysconfig.get_path('include', scheme='posix_prefix'))"
    return _ask([interpreter.executable, "-I", "-c", code], environment).strip()


def _try_linker(argv: list[str], environment: dict[str, str], option: str) -> Linker | None:
    """Link a shared object with it; None when it is not there or does not work."""
    with tempfile.TemporaryDirectory(prefix="warmcc-probe-") as folder:
        said, made = os.path.join(folder, "said"), os.path.join(folder, "out")
        Path(folder, "empty.cpp").write_text("extern int nothing;\n")
        options = [
            "-shared", "-fPIC", *filter(None, [option]), os.path.join(folder, "empty.cpp"), "-o",
            made,
        ]  # fmt: skip
        _ask(argv, environment, *options, f"-Wl,--dependency-file={said}", folder=folder)
        if os.path.isfile(made) and os.path.isfile(said):  # gold says it also where it fails
            return Linker(option, True)
        _ask(argv, environment, *options, folder=folder)
        return Linker(option, False) if os.path.isfile(made) else None


def _linkers(argv: list[str], environment: dict[str, str], programs: list[str]) -> list[Linker]:
    """Those of the ``programs``, and the compiler's own."""
    there = {os.path.basename(path) for path in programs}
    fast = [option for name, option in FAST_LINKERS.items() if name in there]
    tried = [_try_linker(argv, environment, option) for option in fast]
    found = [one for one in tried if one is not None and one.says_what_it_read]
    return [*found, _try_linker(argv, environment, "") or Linker("", False)]


def _assembler_tells(argv: list[str], environment: dict[str, str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="warmcc-probe-") as folder:
        source, said = Path(folder, "empty.s"), Path(folder, "said")
        source.touch()
        options = ["-c", str(source), f"-Wa,--MD,{said}", "-o", os.path.join(folder, "out")]
        _ask(argv, environment, *options, folder=folder)
        return said.is_file()


def _torch_version(torch_dir: str) -> str:
    try:
        text = Path(torch_dir, "version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    match = re.search(r"^__version__ = ['\"](.*)['\"]", text, re.M)
    return match[1] if match else ""


def _identify(
    argv: list[str], environment: dict[str, str], interpreter: Interpreter, known: KnownContents
) -> _Kept:
    """Without the CUDA compiler."""
    version = _ask(argv, environment, "--version").split("\n")[0]
    says = _ask(argv, environment, "-v")
    family: Literal["gcc", "clang", "unknown"] = "unknown"
    if "clang version" in says:
        family = "clang"
    elif "gcc version" in says:
        family = "gcc"
    programs, missing = lookups.programs(argv, environment, _ask, (*PARTS, *FAST_LINKERS))
    torch_files = [os.path.join(interpreter.torch_dir, name) for name in TORCH_FILES]
    files = {path: fingerprint(path) for path in (*programs, *torch_files, interpreter.executable)}
    include_folders, absent, said = lookups.headers(argv, environment, _ask)
    if not include_folders:
        raise MissingCompiler(
            f"{shlex.join(argv)} does not report its header folders:\n{said[-500:]}"
        )
    library_folders = lookups.libraries(argv, environment, _ask)
    linkers = _linkers(argv, environment, programs)
    roots = [*include_folders, os.path.realpath(interpreter.torch_dir), interpreter.torch_dir]
    roots.append(_python_include(interpreter, environment))
    named = (environment.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    roots += [cuda.own_folder(home) for home in named if home]
    files |= dict.fromkeys(missing | absent)  # one that appears makes another toolchain
    identity = {
        "argv": argv[1:], "family": family,
        "version": version.removeprefix(f"{os.path.basename(argv[0])} "),
        "target": _ask(argv, environment, "-dumpmachine").strip(),
        "linkers": [linker.option for linker in linkers],
        "folders": [include_folders, library_folders],
        "programs": lookups.named(programs, argv[0]),
        "torch_files": [known.digest(path) if files[path] else "" for path in torch_files],
        "python": interpreter.abi,
    }  # fmt: skip
    toolchain = Toolchain(
        digest=digest.of_value(identity), argv=argv, family=family, version=version,
        include_folders=include_folders, library_folders=library_folders,
        assembler_tells=family == "gcc" and _assembler_tells(argv, environment),
        roots=list(dict.fromkeys(roots)), torch_dir=interpreter.torch_dir,
        torch_version=_torch_version(interpreter.torch_dir), linkers=linkers,
    )  # fmt: skip
    return _Kept(toolchain, files)


def _with_cuda(cpp: _Kept, environment: dict[str, str], nvcc: str) -> _Kept:
    """The same toolchain with this CUDA compiler."""
    toolkit, read = cuda.identify(nvcc, environment, _ask)
    cc = resolve(environment.get("CC", "gcc"), toolkit.search_path(environment))
    host, missing = lookups.programs(cc, environment, _ask, (*PARTS, *FAST_LINKERS))
    roots = list(dict.fromkeys([*cpp.toolchain.roots, *toolkit.roots]))
    files = cpp.files | {path: fingerprint(path) for path in (*read, *host)}
    found = replace(cpp.toolchain, roots=roots, cuda=toolkit.with_host(host))
    return _Kept(found, files | dict.fromkeys(missing))
