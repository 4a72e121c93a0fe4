"""The CUDA toolkit: whether nvcc is where torch would look for it, and which version it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from warmcc.client.cli.checks.finding import Finding, output


def toolkit() -> Iterator[Finding]:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = (
        os.path.join(home, "bin/nvcc")
        if home
        else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    )
    if not os.access(nvcc, os.X_OK):
        advice = f"{nvcc} does not exist: set CUDA_HOME to the toolkit, or unset it" if home else ""
        yield Finding(
            "CUDA", "bad" if home else "note", "nvcc not found: only C++ can be built", advice
        )
        return
    release = next(
        (line for line in output(nvcc, "--version").splitlines() if "release" in line), ""
    ).strip()
    architectures = os.environ.get("TORCH_CUDA_ARCH_LIST")
    yield Finding(
        "CUDA",
        "ok",
        f"{nvcc}: {release}; architectures: {architectures or 'those of the GPUs here'}",
    )
