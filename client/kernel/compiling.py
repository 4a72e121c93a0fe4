"""Have one text compiled: by the daemon, which keeps it, or by the same compiler in this process.

The latter is the way back where no daemon serves: it costs a compile per process, and the daemon
counts it where there is one.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec

from warmcc import kernels, nvrtc
from warmcc.client.connection import ask, exceptions, session
from warmcc.client.connection.offline import is_offline
from warmcc.client.notices import warn_once
from warmcc.errors import (
    CompileError,
    DaemonError,
    DaemonUnavailable,
    RequestError,
    WarmccError,
    WarmccWarning,
)
from warmcc.protocol import Built, Declined, Diagnostic, Failed, Fallback, Kernel, encode
from warmcc.request import KernelRequest

_LOCATED = (  # compiled when it is needed: that takes a millisecond
    r"(?m)^(?P<file>[^\s:(][^:(\n]*)(?:\((?P<row>\d+)\)|:(?P<line>\d+)(?::(?P<column>\d+))?): "
    r"(?P<severity>(?:catastrophic |fatal )?error|warning)\b[^:]*: (?P<message>.*)$"
)  # fmt: skip


class Compiled(msgspec.Struct, frozen=True):
    """What was compiled: its bytes, the lowered names of its kernels, and what the compiler said.
    ``outcome`` is ``hit``, ``miss`` or ``joined``, or ``local`` where no daemon served; ``path``
    is in the store, or empty; ``way`` says what compiled it."""

    image: bytes
    names: dict[str, str]
    log: str
    outcome: str
    seconds: float
    path: str = ""
    way: str = ""


def compiled(request: KernelRequest) -> Compiled:
    """Compile a request, or find it.
    Raises CompileError, RequestError, OfflineError, and WarmccError where no compiler is there."""
    try:
        size = len(encode(Kernel(0, request)))
    except UnicodeEncodeError as error:
        raise RequestError(f"{request.name}: the source is not Unicode text: {error}") from None
    if is_offline() or os.environ.get("WARMCC_DISABLE") != "1":
        try:
            found = _asked(request, size)
        except DaemonError as error:
            if os.environ.get("WARMCC_FALLBACK") == "0":
                raise
            _say_why(str(error))
        else:
            if found is not None:
                return found
    return here(request)


def _asked(request: KernelRequest, size: int) -> Compiled | None:
    """The daemon's answer; None where it leaves the request to this process."""
    started = time.monotonic()
    try:
        answer = ask.ask(request, size)
    except ask.TooLarge:
        _count("larger than message_size")
        raise
    if isinstance(answer, Failed):
        raise exceptions.exception(answer)
    if isinstance(answer, Declined):
        if answer.expected:
            return None
        raise DaemonUnavailable(
            f"the warmcc daemon could not compile {request.name!r}: {answer.reason}"
        )
    assert isinstance(answer, Built)
    try:
        image = Path(answer.path).read_bytes()
    except OSError as error:
        raise DaemonUnavailable(f"{answer.path} cannot be read: {error.strerror}") from error
    seconds = time.monotonic() - started
    return Compiled(
        image, answer.names, answer.output, answer.outcome, seconds, answer.path, answer.way
    )


def _say_why(reason: str) -> None:
    _count("kernel: no daemon")
    warn_once(
        f"{reason}\nThis process compiles the kernel itself, which is slower. "
        "(WARMCC_FALLBACK=0 makes this an error; WARMCC_DISABLE=1 always compiles here.)",
        WarmccWarning,
    )


def _count(reason: str) -> None:
    """Have the way back counted, if a daemon runs."""
    try:
        session.current(autostart=False).tell(Fallback(reason))
    except DaemonError:
        session.forget()


@functools.cache
def _nvrtc(path: str) -> nvrtc.Nvrtc:
    return nvrtc.Nvrtc(path)


def here(request: KernelRequest) -> Compiled:
    """Compile in this process. Raises CompileError, WarmccError."""
    started = time.monotonic()
    if request.compiler == "nvrtc":
        text, file = kernels.nvrtc_here(request)
        try:
            image, names, log = _nvrtc(request.library).compile(
                text, file, kernels.nvrtc_options(request), request.names
            )
        except nvrtc.NvrtcError as error:
            raise WarmccError(f"{request.name}: {error}") from None
        except nvrtc.DoesNotCompile as error:
            raise _failed(request, str(error)) from None
        return Compiled(image, names, log, "local", time.monotonic() - started)
    with tempfile.TemporaryDirectory(prefix="warmcc-kernel-") as folder:
        image, log = _run(request, folder)
    names = {}
    if request.compiler == "nvcc":
        try:
            names = kernels.lowered_names(image, request.names)
        except kernels.Unnamed as error:
            raise _failed(request, str(error)) from None
    return Compiled(image, names, log, "local", time.monotonic() - started)


def _run(request: KernelRequest, folder: str) -> tuple[bytes, str]:
    """Run nvcc or the host's compiler in a folder: what it made, and what it printed."""
    source = Path(folder, kernels.source_name(request))
    source.write_text(kernels.source_text(request), encoding="utf-8")
    words = kernels.command(request, _program(request), "made", "made.d")
    try:
        done = subprocess.run(
            words, cwd=folder, env={**os.environ, "LC_ALL": "C.UTF-8"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise WarmccError(
            f"{request.name}: the compiler {words[0]!r} does not run: {error.strerror}"
        ) from error
    if done.returncode:
        raise _failed(request, done.stdout.strip() or f"it ended with {done.returncode}")
    return Path(folder, "made").read_bytes(), done.stdout.strip()


def _program(request: KernelRequest) -> list[str]:
    """The command of a compiler. Raises WarmccError."""
    variables = request.environment
    if request.compiler == "nvcc":
        home = variables.get("CUDA_HOME") or variables.get("CUDA_PATH") or "/usr/local/cuda"
        found = variables.get("PYTORCH_NVCC") or shutil.which("nvcc", path=f"{home}/bin")
        found = found or shutil.which("nvcc")
        if found is None:
            raise WarmccError(f"{request.name}: nvcc was not found (CUDA_HOME, or PATH)")
        return [found]
    import shlex

    usual = "cc" if request.compiler == "cc" else "c++"
    try:
        words = shlex.split(variables.get("CC" if usual == "cc" else "CXX", usual))
    except ValueError as error:
        raise WarmccError(f"{request.name}: the compiler is not a command: {error}") from error
    return words or [usual]


def _failed(request: KernelRequest, said: str) -> CompileError:
    """The same error as with a daemon."""
    found = [
        Diagnostic(
            match["file"], int(match["row"] or match["line"]), int(match["column"] or 0), "error",
            match["message"],
        )
        for match in re.finditer(_LOCATED, said) if match["severity"] != "warning"
    ]  # fmt: skip
    first = Diagnostic(request.file, 0, 0, "error", said.partition("\n")[0])
    return CompileError(f"Error building extension {request.name!r}: {said}", found or [first])
