"""Which compiler a text gets, what tells it from others, and how it is run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from warmcc import kernels
from warmcc.config import Config
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.kernel.makers import MADE, DoesNotCompile, Made, Maker, NotHere
from warmcc.daemon.kernel.nvrtc import Nvrtc
from warmcc.daemon.plan import requested
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain, Toolchains, lookups, ninja, nvcc_flags, processor
from warmcc.daemon.toolchain.flags import unkeyable
from warmcc.daemon.toolchain.identity import fingerprint
from warmcc.request import KEYED_ENVIRONMENT, KernelRequest

_NATIVE = re.compile(r"-m\w+=native")
_DEPENDS, _LINKED = "made.d", "made.link.d"


class Compilers:
    """Finds and runs compilers. One per daemon."""

    def __init__(
        self, config: Config, toolchains: Toolchains, runner: Runner, closures: Closures,
        marks: dict[str, str],
    ) -> None:  # fmt: skip
        self._toolchains = toolchains
        self._runner = runner
        self._timeout = config.build_timeout
        self._nvrtc = Nvrtc(config, closures, runner.background, marks)

    async def close(self) -> None:
        """End the processes that compile."""
        await self._nvrtc.close()

    async def maker(self, request: KernelRequest) -> Maker:
        """What compiles a request. Raises NotHere, MissingCompiler."""
        own = [*filter(None, [request.folder]), *request.include_dirs]
        if request.compiler == "nvrtc":
            return self._nvrtc.maker(request, own)
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
            return await self._nvrtc.run(request, maker, folder)
        return await self._run_program(request, maker, folder)

    async def _run_program(self, request: KernelRequest, maker: Maker, folder: Path) -> Made:
        source = folder / kernels.source_name(request)
        source.write_text(kernels.source_text(request), errors="surrogateescape")
        argv = list(maker.argv)
        linker = maker.toolchain.linkers[-1] if maker.toolchain is not None else None
        tells = request.compiler != "nvcc" and linker is not None and linker.says_what_it_read
        if tells:
            argv.append(f"-Wl,--dependency-file={_LINKED}")
        words = kernels.command(request, argv, MADE, _DEPENDS)
        environment = {**request.environment, "LC_ALL": "C.UTF-8", "TMPDIR": str(folder)}
        environment.setdefault("PATH", os.defpath)
        done = await self._runner.run(
            words, cwd=folder, environment=environment, timeout=self._timeout
        )
        if done.timed_out or done.code:
            late = f"it took longer than {self._timeout:g} s" if done.timed_out else ""
            raise DoesNotCompile(done.output.strip() or late or f"it ended with {done.code}")
        made = Made(folder / MADE, {}, done.output.strip(), [" ".join(words)])
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
