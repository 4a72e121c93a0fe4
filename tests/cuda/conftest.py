"""A daemon with warm CUDA, for machines that have nvcc and a torch that was built for it. No GPU is
needed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import _running
from tests.daemons import Daemon

UNITS = sorted((Path(__file__).parent / "units").glob("*.cu"))
HOME = next(
    (path for path in ("/usr/local/cuda", os.environ.get("CUDA_HOME", "")) if os.path.exists(path)),
    "",
)


class CudaDaemon(Daemon):
    """A daemon whose CUDA profiles can be waited for."""

    def cuda(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["accelerators"]["cuda"]
        return found

    def wait_for_cuda(self, seconds: float = 400.0) -> None:
        """Wait until the profiles that are being made are ready, or given up."""
        deadline = time.monotonic() + seconds
        while self.status()["prewarming"] or any(map(is_warming, self.cuda()["profiles"])):
            assert time.monotonic() < deadline, f"CUDA does not get warm:\n{self.log()}"
            time.sleep(0.2)


def is_warming(profile: dict[str, Any]) -> bool:
    return profile["state"] == "building" or "not warm yet" in profile["no_warm_level"].values()


@pytest.fixture(scope="session")
def nvcc() -> str:
    """CUDA_HOME, where CUDA units can be built."""
    import torch

    if torch.version.cuda is None or not shutil.which("nvcc", path=f"{HOME}/bin"):
        pytest.skip("needs nvcc, and a torch that was built for CUDA")
    return HOME


@pytest.fixture(scope="session", autouse=True)
def _architecture(nvcc: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_HOME", nvcc)
        patch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
        yield


@pytest.fixture(scope="session")
def warm_cuda(_architecture: None) -> Iterator[CudaDaemon]:
    """One daemon for all tests that do not harm it."""
    # With room for all levels that they want: none goes for another, and forks ahead fit beside
    # them.
    one = CudaDaemon(prewarm=[""], prewarm_cuda=True, sample_after=0.5, cuda_memory=8 << 30)
    _running.append(one)
    try:
        one.start()
        one.wait_for_cuda()
        yield one
        one.stop()
    finally:
        _running.remove(one)
        one.discard()
