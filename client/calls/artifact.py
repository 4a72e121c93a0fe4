"""``warmcc.build_inline`` and ``warmcc.build``: compile without loading, and without a GPU.

They take what ``load_inline`` and ``load`` take. What they return can be copied to another machine,
or loaded here; torch is imported only then. There is no way back to stock torch, which builds
nothing without loading it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any

import msgspec

from warmcc import digest
from warmcc.client.bundles.torch_look import torch_look
from warmcc.client.calls import arguments as args
from warmcc.client.calls import bundled
from warmcc.client.calls.progress import Display
from warmcc.client.connection import ask, exceptions
from warmcc.client.loading import loader
from warmcc.errors import DaemonUnavailable, RequestError
from warmcc.protocol import Build, Built, Declined, Failed, encode
from warmcc.request import Request

_ARCHITECTURE = re.compile(r"(?:\d+\.\d+[af]?|[A-Z][a-z]+)(?:\+PTX)?")
_USED = re.compile(r"^ Function (\S+):\n\s+(.+)$", re.M)
_NUMBER = re.compile(r"(\w+)(?:\[\d+\])?:(\d+)")


@dataclass(frozen=True)
class Kernel:
    """What one kernel takes, as ``cuobjdump`` says: registers per thread; bytes of shared memory
    per block, and of stack and local memory per thread. What spills is in these two.
    ``name`` is mangled, ``architecture`` like ``sm_90``."""

    name: str
    architecture: str
    registers: int
    shared: int
    stack: int
    local: int


@dataclass(frozen=True)
class Artifact:
    """A shared object that was built, and not loaded.

    ``path`` is in the store, where it stays until the store needs the room; ``outcome`` is ``hit``,
    ``miss`` or ``joined``, ``seconds`` what the daemon took, ``steps`` the seconds of each step of
    a miss, and ``commands`` what was run.
    """

    name: str
    path: str
    outcome: str
    seconds: float
    steps: dict[str, float] = field(repr=False)
    commands: list[str] = field(repr=False)
    _request: Request = field(repr=False)
    _answer: Built = field(repr=False)
    # Whether torch was replaced since: what a bundle is told of torch must be what it was built for
    _torch: list[int] = field(repr=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of the file. Raises OSError."""
        return digest.of_file(self.path)

    def load(self) -> Any:
        """The module; with ``is_python_module=False`` the path of the library, after loading it.
        Imports torch. Raises ImportError, OSError."""
        import torch  # noqa: F401  # its libraries must be there first

        return loader.load(self._request, self._answer, None)

    def copy_to(self, folder: str | os.PathLike[str]) -> str:
        """Copy the file into a folder, and return the copy's path. Raises OSError."""
        return shutil.copy(self.path, os.fspath(folder))

    def stub(self) -> str:
        """The text of a ``.pyi``: the signatures that pybind11 documents in the module, for editors
        and type checkers. The module is imported in another process, with torch.
        Raises RequestError where it is no Python module, or cannot be imported."""
        from warmcc.client.stubs import stub

        if self._request.is_standalone or not self._request.is_python_module:
            raise RequestError(
                f"{self.name!r} was not built as a Python module: there is nothing to stub; "
                "operators are called by torch.ops, which needs no stub"
            )
        sources = [text for name, text in self._answer.sources.items() if stub.is_cpp(name)]
        return stub.stub(self.path, self._request.module_name, sources)

    def kernels(self) -> list[Kernel]:
        """The kernels in it, for each architecture; none without CUDA sources.
        Runs ``cuobjdump``. Raises RuntimeError where there is none."""
        if not self._request.cuda_sources and not any(
            source.endswith(".cu") for source in self._request.sources
        ):
            return []
        done = subprocess.run(
            [_cuobjdump(), "--dump-resource-usage", self.path],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"cuobjdump failed: {(done.stderr or done.stdout).strip()}")
        return list(_kernels(done.stdout))


def build_inline(
    name: str, cpp_sources: str | list[str], cuda_sources: str | list[str] | None = None, *,
    architectures: list[str] | None = None, **more: Any,
) -> Artifact:  # fmt: skip
    """Build an extension from source strings, and do not load it.

    ``architectures`` are those of the GPUs that shall run it, as TORCH_CUDA_ARCH_LIST has them:
    ``["8.0", "9.0+PTX"]``. The other parameters are those of ``load_inline``, by name.

    Raises CompileError when the sources do not compile, RequestError for what cannot be asked for,
    and DaemonError when there is no daemon.
    """
    given = {"cpp_sources": cpp_sources, "cuda_sources": cuda_sources, **more}
    return _build("load_inline", name, given, architectures)


def build(
    name: str, sources: str | list[str] | list[os.PathLike[str]], *,
    architectures: list[str] | None = None, **more: Any,
) -> Artifact:  # fmt: skip
    """Build an extension from source files, and do not load it.
    See ``build_inline``; the other parameters are those of ``load``."""
    return _build("load", name, {"sources": sources, **more}, architectures)


async def build_inline_async(*given: Any, **more: Any) -> Artifact:
    """``build_inline`` for programs with an event loop, which goes on meanwhile."""
    return await asyncio.to_thread(build_inline, *given, **more)


async def build_async(*given: Any, **more: Any) -> Artifact:
    """``build`` for programs with an event loop, which goes on meanwhile."""
    return await asyncio.to_thread(build, *given, **more)


def _build(
    call: str, name: str, given: dict[str, Any], architectures: list[str] | None
) -> Artifact:
    try:
        request = args.to_request(call, args.complete(call, {"name": name, **given}))
        size = len(encode(Build(0, request)))
    except args.NotCarried as told:
        raise RequestError(f"{name!r} cannot be built without loading it: {told}") from None
    except UnicodeEncodeError:
        raise RequestError(f"{name!r}: a text is not Unicode") from None
    if architectures is not None:
        request = _for(request, architectures)
    torch = torch_look(request.interpreter.torch_dir)
    if (found := bundled.answer(request)) is not None:
        return _artifact(request, found, torch)
    with Display(request) as display:
        answer = ask.ask(request, size, on_progress=display.progress, on_output=display.output)
    if isinstance(answer, Failed):
        raise exceptions.exception(answer)
    if isinstance(answer, Declined):
        kind = RequestError if answer.expected else DaemonUnavailable
        raise kind(f"the daemon cannot build {name!r}: {answer.reason}")
    bundled.record(request, answer)
    return _artifact(request, answer, torch)


def _artifact(request: Request, answer: Built, torch: list[int]) -> Artifact:
    return Artifact(
        request.name, answer.path, answer.outcome, answer.seconds, answer.steps, answer.commands,
        request, answer, torch,
    )  # fmt: skip


def _for(request: Request, architectures: list[str]) -> Request:
    for one in architectures:
        if not _ARCHITECTURE.fullmatch(one):
            raise RequestError(f"{one!r} is no architecture; they look like '9.0' or '8.0+PTX'")
    if not architectures:
        raise RequestError("architectures is empty; name one, or leave it out")
    environment = {**request.environment, "TORCH_CUDA_ARCH_LIST": ";".join(architectures)}
    return msgspec.structs.replace(request, environment=environment)


def _cuobjdump() -> str:
    """Raises RuntimeError."""
    from warmcc.client.bundles import gpus

    if (found := gpus.cuobjdump()) is None:
        raise RuntimeError(
            "cuobjdump was not found: it comes with the CUDA toolkit and with Triton"
        )
    return found


def _kernels(output: str) -> Any:
    r"""The kernels that cuobjdump lists.

    >>> text = "elf code:\narch = sm_90\n Function k:\n  REG:12 STACK:0 SHARED:8 LOCAL:4\n"
    >>> list(_kernels(text))
    [Kernel(name='k', architecture='sm_90', registers=12, shared=8, stack=0, local=4)]
    """
    for part in output.split("\narch = ")[1:]:
        architecture = part.split("\n", 1)[0].strip()
        for name, used in _USED.findall(part):
            of = {key: int(value) for key, value in _NUMBER.findall(used)}
            yield Kernel(
                name, architecture, of["REG"], of.get("SHARED", 0), of.get("STACK", 0),
                of.get("LOCAL", 0),
            )  # fmt: skip
