"""The sandbox (``sandbox = true``): all that the daemon runs sees the toolchain, the folders of ``sandbox_roots`` and
what it is given to work on, and can write only the last.

What a source includes by an absolute path, what an assembler's ``.incbin`` reads, what a flag writes: all of it fails
as if it were not permitted. What may be read does not depend on the request: a request that names anything else is
refused, so that its caller sees why. Made with Landlock and seccomp (``confine.py``), which need no privilege and no
namespaces.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from warmcc import digest
from warmcc.daemon.plan import keys
from warmcc.daemon.system import landlock
from warmcc.daemon.toolchain.flags import folders, split
from warmcc.errors import ConfigError
from warmcc.request import Request

log = logging.getLogger(__name__)

_NATIVE = Path(__file__).with_name("native")
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt")
_FILES = (
    "/etc/ld.so.cache", "/etc/alternatives", "/dev/urandom", "/dev/zero", "/proc/meminfo", "/proc/cpuinfo",
    "/proc/stat", "/proc/loadavg",
)  # fmt: skip
_DEVICES = ("/dev/null",)
_PROGRAMS = ("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "PYTORCH_NVCC")  # variables that name a program or its folder
_NAMES_FILE = ("-include", "-imacros", "--sysroot", "-isysroot", "-iprefix", "-imultilib")


class Refused(Exception):
    """A request names what builds here may not read; the text says what, and what to do."""


class Sandbox:
    """``roots`` are the configured folders for input, ``own`` the daemon's that builds read (precompiled headers,
    ninja), ``staging`` is where builds work, ``helper`` what ``make_helper`` made. Raises ConfigError."""

    def __init__(self, roots: Sequence[str], own: Iterable[str | Path], staging: Path, helper: Path | None) -> None:
        for root in roots:
            if not os.path.isabs(root) or not os.path.isdir(root) or "\n" in root:
                raise ConfigError(f"sandbox_roots: {root!r} is not the absolute path of a folder; correct or remove it")
        self._inputs = _real([*_SYSTEM, *_ours(), *roots])
        self._readable = _real([*self._inputs, *_FILES, *own, os.path.dirname(landlock.__file__)])
        self._staging = staging
        self._front = [str(helper)] if helper is not None else [sys.executable, "-I", "-S", landlock.__file__]

    @staticmethod
    def missing() -> str | None:
        """Why there is no sandbox on this machine, or None."""
        if not landlock.version():
            return "sandbox = true, but this kernel has no Landlock"
        return (
            None if landlock.has_filters() else "sandbox = true, but this kernel cannot filter system calls (seccomp)"
        )

    def command(
        self,
        argv: Sequence[str],
        environment: dict[str, str],
        reads: Iterable[str | Path],
        writes: Iterable[str | Path],
    ) -> tuple[list[str], dict[str, str]]:
        """The command that runs ``argv`` confined, and its environment. What has a program load other code (LD_…) is
        set behind the confinement: what comes before it is the daemon's own."""
        loads = {name: value for name, value in environment.items() if name.startswith("LD_")}
        rules = landlock.rules([*self._readable, *map(str, reads)], [*map(str, writes), *_DEVICES], loads)
        plain = {name: value for name, value in environment.items() if name not in loads}
        return [*self._front, rules, *argv], plain

    def of_server(self, folder: Path) -> tuple[list[Path], dict[str, str]]:
        """What a fork server writes, and the variable by which its forks confine themselves once more: each may write
        its own folder only, and does not see another's (``native/forkserver.c``)."""
        rules = landlock.rules([*self._readable, str(folder)], ["."], calls=False)  # the filter stays in force
        return [folder, folder.parent, self._staging], {"WARMCC_CONFINE": rules}

    def refused(self, request: Request) -> str | None:
        """What a request names that builds may not read, with what to do; None when there is nothing."""
        for what, path in _named(request):
            if not any(_is_below(os.path.realpath(path), root) for root in self._inputs):
                return (
                    f"this daemon builds in a sandbox, where {path} ({what}) cannot be read; use what is below one of "
                    "the folders in sandbox_roots, or have its folder added to them in the daemon's configuration"
                )
        return None


def make_helper(folder: Path) -> Path | None:
    """The program that confines commands, compiled with the daemon's own compiler, tried, and kept by content; None
    where that does not work, and Python does the same."""
    sources = [_NATIVE / name for name in ("confine.c", "confine.h")]
    place = folder / f"confine-{digest.of_value([digest.of_file(path) for path in sources])[:16]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not place.exists():
            draft = place.with_suffix(f".{os.getpid()}")
            subprocess.run(["cc", "-O2", str(sources[0]), "-o", str(draft)], check=True, capture_output=True)
            draft.rename(place)
        rules = landlock.rules(["/"], [])
        subprocess.run([place, rules, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        log.warning(
            "the sandbox is set up by Python, which is slower: %s", said.decode(errors="replace").strip()[-500:]
        )
        return None
    return place


def _ours() -> list[str]:
    """Where this Python and its torch are."""
    spec = importlib.util.find_spec("torch")
    torch = [os.path.dirname(os.path.dirname(spec.origin))] if spec is not None and spec.origin is not None else []
    return [sys.prefix, sys.base_prefix, *torch]


def _real(paths: Iterable[str | Path]) -> list[str]:
    return sorted({os.path.realpath(path) for path in paths})


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _named(request: Request) -> Iterator[tuple[str, str]]:
    """The paths in a request, each with the name of what it stands in."""
    interpreter = request.interpreter
    yield "the interpreter", os.path.dirname(interpreter.executable)  # an environment's own, beside which its files are
    yield "the interpreter", interpreter.executable
    yield "torch", interpreter.torch_dir
    yield from (("sources", path) for path in request.sources)
    yield from (("extra_include_paths", path) for path in request.extra_include_paths)
    workdir, home = keys.workdir(request), keys.home(request)
    for name in ("extra_cflags", "extra_cuda_cflags", "extra_ldflags"):
        with contextlib.suppress(ValueError):  # a quote is not closed: that is for the compiler to say
            words = split(" ".join(getattr(request, name)))
            paths = [path if workdir is None else os.path.join(workdir, path) for path in _of_flags(words)]
            yield from ((name, path) for path in paths if os.path.isabs(path))
    yield from (("build_directory", path) for path in (workdir, home) if path is not None)
    for name in _PROGRAMS:
        yield from ((name, word) for word in request.environment.get(name, "").split() if os.path.isabs(word))


def _of_flags(words: list[str]) -> list[str]:
    """The paths that flags name."""
    found = [*folders(words), *(word[2:] for word in words if word.startswith("-L")), *words]
    after = [value for option, value in pairwise(words) if option in (*_NAMES_FILE, "-L")]
    joined = [word.partition("=")[2] for word in words if word.startswith(tuple(f"{name}=" for name in _NAMES_FILE))]
    return [path for path in (*found, *after, *joined) if path and not path.startswith("-")]
