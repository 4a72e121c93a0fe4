"""Compile one text in this process, by the same compiler as the daemon: it costs a compile per
process."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from warmcc import kernels, nvrtc
from warmcc.client.kernel.compiling import Compiled
from warmcc.errors import CompileError, WarmccError
from warmcc.protocol import Diagnostic
from warmcc.request import KernelRequest

_LOCATED = (
    r"(?m)^(?P<file>[^\s:(][^:(\n]*)(?:\((?P<row>\d+)\)|:(?P<line>\d+)(?::(?P<column>\d+))?): "
    r"(?P<severity>(?:catastrophic |fatal )?error|warning)\b[^:]*: (?P<message>.*)$"
)  # fmt: skip


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
