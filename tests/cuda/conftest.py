"""A daemon with warm CUDA, for machines that have nvcc and a torch that was built for it. No GPU is
needed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.cuda import HOME, CudaDaemon
from tests.support.daemons import running


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
    running.append(one)
    try:
        one.start()
        one.wait_for_cuda()
        yield one
        one.stop()
    finally:
        running.remove(one)
        one.discard()


@pytest.fixture
def client(warm_cuda: CudaDaemon, monkeypatch: pytest.MonkeyPatch) -> CudaDaemon:
    for name, value in warm_cuda.environment.items():
        monkeypatch.setenv(name, value)
    return warm_cuda
