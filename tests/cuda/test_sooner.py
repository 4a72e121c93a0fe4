"""A CUDA unit with few headers beside a C++ unit with all of torch's, on two processors: nvcc ends
first, and what would be made ready for it would take the C++ unit's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc
from tests.support.cuda import CudaDaemon, levels, new_number
from warmcc.daemon.system import resources

REASON = "nvcc ends before the C++ units do"

pytestmark = pytest.mark.skipif(resources.processors() < 2, reason="needs two processors")


@pytest.fixture
def daemon(nvcc: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDaemon]:
    """One for which nothing is warm, with as many steps at a time as two processors have."""
    made = CudaDaemon(jobs=2)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    try:
        made.start()
        yield made
        made.stop()
    finally:
        made.discard()


def kernel(folder: Path, name: str = "unit") -> str:
    text = f'extern "C" __global__ void {name}(int* y) {{ *y = {new_number()}; }}\n'
    (folder / f"{name}.cu").write_text(text)
    return str(folder / f"{name}.cu")


def frontend(folder: Path, header: str) -> str:
    place = folder / "frontend.cpp"
    place.write_text(f"#include {header}\nint version() {{ return {new_number() % 1000000}; }}\n")
    return str(place)


def load(*sources: str) -> None:
    warmcc.load("sooner", list(sources), is_python_module=False)


@pytest.mark.ci
def test_it_is_nvccs_at_once_and_warm_the_next_time(daemon: CudaDaemon, tmp_path: Path) -> None:
    other = frontend(tmp_path, "<torch/types.h>")
    load(kernel(tmp_path), other)
    assert levels(daemon) == {"exact": 1}
    assert daemon.cuda()["not_faster"] == {REASON: 1}
    while not daemon.cuda()["profiles"]:  # begun when the machine is quiet
        daemon.wait_for_cuda()
    daemon.wait_for_cuda()
    before = levels(daemon)
    load(kernel(tmp_path), other)
    assert levels(daemon, before) == {"warm": 1}
    assert daemon.cuda()["not_faster"] == {REASON: 1}


def test_it_may_wait_beside_what_is_no_longer(daemon: CudaDaemon, tmp_path: Path) -> None:
    load(kernel(tmp_path), frontend(tmp_path, "<vector>"))
    assert REASON not in daemon.cuda()["not_faster"]


def test_for_several_architectures_nvcc_takes_longer(
    daemon: CudaDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0")
    load(kernel(tmp_path), frontend(tmp_path, "<torch/types.h>"))
    assert REASON not in daemon.cuda()["not_faster"]


def test_several_share_what_is_made_ready(daemon: CudaDaemon, tmp_path: Path) -> None:
    """There are more units than steps at a time, so that what is saved of each one counts."""
    load(kernel(tmp_path), kernel(tmp_path, "another"), frontend(tmp_path, "<torch/types.h>"))
    assert REASON not in daemon.cuda()["not_faster"]
