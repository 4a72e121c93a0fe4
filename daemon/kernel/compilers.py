"""Which compiler a text gets, what tells it from others, and how it is run."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmcc import kernels
from warmcc.config import Config
from warmcc.daemon.build import diagnostics
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.kernel.headers import Beginning, PrecompiledHeaders, leading
from warmcc.daemon.kernel.includes import ByMacro, Includes
from warmcc.daemon.kernel.workers import Crashed, WorkerFailed, Workers
from warmcc.daemon.plan import requested
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain, Toolchains, lookups, ninja, nvcc_flags, processor
from warmcc.daemon.toolchain.flags import unkeyable
from warmcc.daemon.toolchain.identity import fingerprint
from warmcc.protocol import Diagnostic, Failed
from warmcc.request import KEYED_ENVIRONMENT, KernelRequest

# Options of NVRTC that need more than one text, or write files.
_NVRTC_REFUSED = ("-dlto", "--dlto", "-rdc", "--relocatable-device-code", "--device-c", "-dc")
_NATIVE = re.compile(r"-m\w+=native")
_FORCED = ("--pre-include=", "-include=")
_SILENT = "--pch-messages=false"
_MADE, _DEPENDS, _LINKED = "made", "made.d", "made.link.d"


class NotHere(Exception):
    """The client compiles a text by itself; ``expected``: that is by design."""

    def __init__(self, reason: str, expected: bool) -> None:
        super().__init__(reason)
        self.expected = expected


class DoesNotCompile(Exception):
    """``str()`` is what the compiler said."""


@dataclass(frozen=True)
class Maker:
    """What compiles a text, and ``identity``, all that tells it from others.

    ``folders`` are searched for headers, in their order, and ``roots`` are those of the toolchain.
    """

    identity: list[object]
    folders: list[str]
    roots: list[str]
    argv: list[str] = field(default_factory=list)
    toolchain: Toolchain | None = None


@dataclass
class Made:
    """A file that was made, what the compiler may have read for it (``unknown``: why that is not
    known), and what its making printed."""

    path: Path
    names: dict[str, str]
    log: str
    commands: list[str]
    read: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)  # where the linker looks for them
    unknown: str = ""
    way: str = ""


class Compilers:
    """Finds and runs compilers. One per daemon."""

    def __init__(
        self, config: Config, toolchains: Toolchains, runner: Runner, closures: Closures,
        marks: dict[str, str],
    ) -> None:  # fmt: skip
        self._toolchains = toolchains
        self._runner = runner
        self._timeout = timeout = config.build_timeout
        self._workers = Workers(memory=config.step_memory, marks=marks)
        self._headers = PrecompiledHeaders(self._workers, closures, runner.background, timeout)
        self._includes = Includes()

    async def close(self) -> None:
        """End the processes that compile."""
        await self._headers.close()
        await self._workers.close()

    async def maker(self, request: KernelRequest) -> Maker:
        """What compiles a request. Raises NotHere, MissingCompiler."""
        own = [*filter(None, [request.folder]), *request.include_dirs]
        if request.compiler == "nvrtc":
            return self._nvrtc(request, own)
        if (reason := self._refused(request)) is not None:
            raise NotHere(f"unsupported flags: {reason}", True)
        variables = request.environment
        cxx = variables.get("CC", "cc") if request.compiler == "cc" else variables.get("CXX", "c++")
        is_nvcc = request.compiler == "nvcc"
        found = await self._toolchains.identify(
            variables, cxx, request.interpreter, with_cuda=is_nvcc
        )
        search = [f"-I{folder}" for folder in own]
        identity: list[object] = [found.digest, self._variables(request)]
        if any(_NATIVE.fullmatch(option) for option in request.options):
            identity.append(processor.identity())
        if is_nvcc:
            assert found.cuda is not None
            identity.append(found.cuda.digest)
            first, later = found.cuda.include_folders
            search += [*(f"-I{path}" for path in first), *(f"-isystem{path}" for path in later)]
        elif request.compiler == "cc":
            identity += self._cc1(found)
        folders = lookups.header_search(search, found.include_folders, variables)
        argv = [found.cuda.nvcc] if is_nvcc and found.cuda is not None else found.argv
        return Maker(identity, folders, found.roots, argv, found)

    def _nvrtc(self, request: KernelRequest, own: list[str]) -> Maker:
        for option in request.options:
            if option.partition("=")[0] in _NVRTC_REFUSED:
                raise NotHere(f"unsupported flags: {option}", True)
        found = fingerprint(request.library)
        if found is None:
            raise NotHere(f"{request.library or 'libnvrtc'} is not there", True)
        real = os.path.realpath(request.library)
        beside = os.path.dirname(real)
        builtins = [
            [name, *(fingerprint(os.path.join(beside, name)) or ())]
            for name in sorted(os.listdir(beside)) if name.startswith("libnvrtc-builtins")
        ]  # fmt: skip
        folders = [*own, *request.system_dirs]
        return Maker([real, *found, builtins], folders, request.system_dirs)

    @staticmethod
    def _refused(request: KernelRequest) -> str | None:
        if request.compiler == "nvcc":
            variables = [request.environment.get(name, "") for name in requested.NVCC_FLAGS]
            return nvcc_flags.unkeyable([*request.options, *variables])
        return unkeyable(" ".join(request.options))

    @staticmethod
    def _variables(request: KernelRequest) -> dict[str, str]:
        left_out = ("PATH", "TORCH_CUDA_ARCH_LIST", "CUDA_VISIBLE_DEVICES")
        return {
            name: value for name, value in request.environment.items()
            if name in KEYED_ENVIRONMENT and name not in left_out
        }  # fmt: skip

    @staticmethod
    def _cc1(found: Toolchain) -> list[object]:
        """The compiler proper of C, which is not among the parts of a C++ toolchain."""
        folders = {os.path.dirname(path) for path in found.include_folders}
        folders |= {folder.replace("/lib/gcc/", "/libexec/gcc/") for folder in folders}
        paths = sorted(os.path.join(folder, "cc1") for folder in folders)
        return [[path, *(fingerprint(path) or ())] for path in paths]

    async def run(self, request: KernelRequest, maker: Maker, folder: Path) -> Made:
        """Compile in a folder. Raises DoesNotCompile, NotHere, OSError."""
        if request.compiler == "nvrtc":
            return await self._run_nvrtc(request, maker, folder)
        return await self._run_program(request, maker, folder)

    async def _run_nvrtc(self, request: KernelRequest, maker: Maker, folder: Path) -> Made:
        made, text = folder / _MADE, kernels.source_text(request)
        options = kernels.nvrtc_options(request)
        job = {"source": text, "file": request.file, "names": request.names, "made": str(made)}
        reader = functools.partial(self._reads, request, maker)
        reading = asyncio.create_task(asyncio.to_thread(reader, text))
        beginning = Beginning(request.library, tuple(options), request.file, leading(text))
        started = time.monotonic()
        try:
            pch = await self._headers.find(beginning)
            words = options if pch is None else [f"--use-pch={pch}", _SILENT, *options]
            reply = await self._job(request, job, words)
            if "failed" in reply and pch is not None:
                reply, pch = await self._job(request, job, options), None
                if "failed" not in reply:
                    self._headers.forget(beginning)
        finally:
            read, absent, unknown = await asyncio.shield(reading)
        if "failed" in reply:
            raise DoesNotCompile(str(reply["failed"]))
        if pch is None and not unknown:
            took = time.monotonic() - started
            self._headers.want(beginning, took, maker.roots, maker.folders, reader)
        command = " ".join(["nvrtc", *options])
        way = "nvrtc" if pch is None else "nvrtc, behind a precompiled header"
        return Made(
            made, reply["names"], reply["log"], [command], read, absent, unknown=unknown, way=way
        )

    async def _job(
        self, request: KernelRequest, job: dict[str, Any], options: list[str]
    ) -> dict[str, Any]:
        """A worker's reply. Raises DoesNotCompile, NotHere."""
        try:
            return await self._workers.compile(
                request.library, {**job, "options": options}, self._timeout
            )
        except Crashed as error:
            raise DoesNotCompile(str(error)) from error
        except WorkerFailed as error:
            raise NotHere(str(error), False) from error
        except asyncio.TimeoutError:
            raise DoesNotCompile(f"NVRTC took longer than {self._timeout:g} s") from None

    def _reads(
        self, request: KernelRequest, maker: Maker, text: str
    ) -> tuple[list[str], list[str], str]:
        """What NVRTC may read; paths that must stay missing; and why that is not known."""
        forced = [
            option.removeprefix(start)
            for option in request.options for start in _FORCED if option.startswith(start)
        ]  # fmt: skip
        try:
            found = self._includes.reads(text, maker.folders, maker.roots, forced)
        except (ByMacro, OSError) as reason:
            return [], [], str(reason)
        return sorted(found.files), sorted(found.absent), ""

    async def _run_program(self, request: KernelRequest, maker: Maker, folder: Path) -> Made:
        source = folder / kernels.source_name(request)
        source.write_text(kernels.source_text(request), errors="surrogateescape")
        argv = list(maker.argv)
        linker = maker.toolchain.linkers[-1] if maker.toolchain is not None else None
        tells = request.compiler != "nvcc" and linker is not None and linker.says_what_it_read
        if tells:
            argv.append(f"-Wl,--dependency-file={_LINKED}")
        words = kernels.command(request, argv, _MADE, _DEPENDS)
        environment = {**request.environment, "LC_ALL": "C.UTF-8", "TMPDIR": str(folder)}
        environment.setdefault("PATH", os.defpath)
        done = await self._runner.run(
            words, cwd=folder, environment=environment, timeout=self._timeout
        )
        if done.timed_out or done.code:
            late = f"it took longer than {self._timeout:g} s" if done.timed_out else ""
            raise DoesNotCompile(done.output.strip() or late or f"it ended with {done.code}")
        made = Made(folder / _MADE, {}, done.output.strip(), [" ".join(words)])
        made.way = os.path.basename(words[0])
        if request.compiler == "nvcc":
            try:
                made.names = kernels.lowered_names(made.path.read_bytes(), request.names)
            except kernels.Unnamed as error:
                raise DoesNotCompile(str(error)) from error
        mine = str(source)
        made.read = [path for path in ninja.dependencies(folder / _DEPENDS, folder) if path != mine]
        if tells and maker.toolchain is not None:
            read = ninja.linked(folder / _LINKED, folder)
            made.libraries = [path for path in read if not path.startswith(f"{folder}/")]
            made.searched = lookups.library_candidates(
                request.options, maker.toolchain.library_folders, request.environment
            )
        elif kernels.has_links(request):
            made.unknown = "the linker does not say which libraries it read"
        return made


def failed(request: KernelRequest, said: str) -> Failed:
    """A compile error, in stock's form."""
    found = [one for one in diagnostics.parse(said) if one.severity in ("error", "fatal error")]
    if not found:
        found = [Diagnostic(request.file, 0, 0, "error", said.partition("\n")[0])]
    return Failed(0, "RuntimeError", f"Error building extension {request.name!r}: {said}", found)
