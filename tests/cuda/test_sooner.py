"""A CUDA unit with few headers beside a C++ unit with all of torch's, on two processors: nvcc ends
first, and what would be made ready for it would take the C++ unit's time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import warmcc
from tests.support.cuda import CudaDaemon, levels, looking, new_number, niceness_behind
from warmcc.daemon.system import resources

REASON = "nvcc ends before the C++ units do"

pytestmark = pytest.mark.skipif(resources.processors() < 2, reason="needs two processors")


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
def test_it_is_nvccs_at_once_and_warm_the_next_time(cold: CudaDaemon, tmp_path: Path) -> None:
    other = frontend(tmp_path, "<torch/types.h>")
    load(kernel(tmp_path), other)
    assert levels(cold) == {"exact": 1}
    assert cold.cuda()["not_faster"] == {REASON: 1}
    while not cold.cuda()["profiles"]:  # begun when the machine is quiet
        cold.wait_for_cuda()
    cold.wait_for_cuda()
    before = levels(cold)
    load(kernel(tmp_path), other)
    assert levels(cold, before) == {"warm": 1}
    assert cold.cuda()["not_faster"] == {REASON: 1}


def test_it_may_wait_beside_what_is_no_longer(cold: CudaDaemon, tmp_path: Path) -> None:
    load(kernel(tmp_path), frontend(tmp_path, "<vector>"))
    assert REASON not in cold.cuda()["not_faster"]


def test_for_several_architectures_nvcc_takes_longer(
    cold: CudaDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0")
    load(kernel(tmp_path), frontend(tmp_path, "<torch/types.h>"))
    assert REASON not in cold.cuda()["not_faster"]


def test_several_share_what_is_made_ready(cold: CudaDaemon, tmp_path: Path) -> None:
    """There are more units than steps at a time, so that what is saved of each one counts."""
    kernels = [kernel(tmp_path, name) for name in ("one", "two", "three")]
    load(*kernels, frontend(tmp_path, "<torch/types.h>"))
    assert REASON not in cold.cuda()["not_faster"]


@pytest.fixture
def never_warm(nvcc: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDaemon]:
    daemon = CudaDaemon(cuda_warm=False, pch=False)
    daemon.start()
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    yield daemon
    daemon.stop()
    daemon.discard()


def test_short_units_leave_the_processors_to_a_long_one(
    never_warm: CudaDaemon, tmp_path: Path
) -> None:
    kernels = [kernel(tmp_path, name) for name in ("one", "two")]
    seen: dict[str, set[int]] = defaultdict(set)  # by program
    own = psutil.Process().nice()

    def look(process: psutil.Process) -> None:
        is_long = any(word.endswith("frontend.cpp") for word in process.cmdline())
        seen["frontend.cpp" if is_long else process.name()].add(process.nice())

    with looking(never_warm, look):
        load(*kernels, frontend(tmp_path, "<torch/types.h>"))
    assert seen["frontend.cpp"] == {own}
    assert seen["cicc"] == seen["cudafe++"] == {niceness_behind(own)}
