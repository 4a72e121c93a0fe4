"""A daemon with warm CUDA, for machines that have nvcc and a torch that was built for it. No GPU is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cuda import ARCHITECTURE, HOME, CudaDaemon, why_not
from tests.support.sharing import RUN


@pytest.fixture(scope="session")
def nvcc() -> str:
    """CUDA_HOME, where CUDA units can be built."""
    if reason := why_not():
        pytest.skip(reason)
    return HOME


@pytest.fixture(scope="module", autouse=True)
def _architecture(nvcc: str) -> Iterator[None]:
    """Also where a module of tests has imported torch's builder before, which looks once."""
    from torch.utils import cpp_extension

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpp_extension, "CUDA_HOME", nvcc)
        for name, value in ARCHITECTURE.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def warm_cuda(nvcc: str, pytestconfig: pytest.Config) -> CudaDaemon:
    """One daemon for all tests that do not harm it; one process of the run has them all."""
    one = pytestconfig.stash[RUN].warm_cuda()
    one.wait_for_cuda()
    return one


@pytest.fixture
def client(warm_cuda: CudaDaemon, monkeypatch: pytest.MonkeyPatch) -> CudaDaemon:
    for name, value in warm_cuda.environment.items():
        monkeypatch.setenv(name, value)
    return warm_cuda


@pytest.fixture
def cold(nvcc: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDaemon]:
    """One for which nothing is warm, with as many compilers at a time as on two processors."""
    made = CudaDaemon(jobs=3)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    try:
        made.start()
        yield made
        made.stop()
    finally:
        made.discard()
