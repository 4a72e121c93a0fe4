"""The steps of a request with several CUDA units are one graph: side by side, numbered together,
ended by a failure.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import warmcc
from tests.support.cuda import (
    DECLARATION,
    CudaDaemon,
    new_toy,
    niceness_behind,
    overlap,
    spans_of_last,
)
from warmcc.errors import CompileError

UNIT = """
__global__ void kernel_{n}(float* x) {{ x[threadIdx.x] += {value}; }}
extern "C" void run_{n}(float* x) {{ kernel_{n}<<<1, 32>>>(x); }}
"""
_numbers = itertools.count(int(time.time()))


def package(folder: Path, units: int, *, wrong: int | None = None) -> list[str]:
    """So many CUDA sources, which nobody has compiled, and a C++ one."""
    made = []
    for n in range(units):
        text = UNIT.format(n=n, value=f"{next(_numbers)}.0f")
        place = folder / f"unit{n}.cu"
        place.write_text(text.replace("+=", "+= undefined_name +") if n == wrong else text)
        made.append(str(place))
    (folder / "main.cpp").write_text(f"int version() {{ return {next(_numbers) % 1000000}; }}\n")
    return [*made, str(folder / "main.cpp")]


def load(sources: list[str], **more: Any) -> Any:
    return warmcc.load("package", sources, is_python_module=False, **more)


@pytest.mark.ci
def test_units_are_compiled_side_by_side_and_numbered_together(
    client: CudaDaemon, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    load(package(tmp_path, 4), verbose=True)
    marks = re.findall(r"^\[(\d+)/(\d+)\] ", capfd.readouterr().out, re.M)
    assert marks == [(str(n), "6") for n in range(1, 7)]
    spans = spans_of_last(client)
    by_unit = {n: [span for span in spans if f"unit{n}.cu" in span.name] for n in range(4)}
    assert all(by_unit.values())
    if client.status()["permits"]["limit"] > 1:
        assert any(overlap(by_unit[a], by_unit[b]) for a, b in itertools.combinations(by_unit, 2))


@pytest.mark.ci
def test_a_cpp_unit_that_may_take_long_begins_first(
    client: CudaDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before CUDA units for which nvcc takes seconds: the link would wait for it."""
    monkeypatch.setenv("MAX_JOBS", "1")
    sources = package(tmp_path, 2)
    load(sources)
    spans = spans_of_last(client)
    (cpp,) = [span for span in spans if span.name == "compile main.o"]
    of_cuda = [span.start for span in spans if ".cu" in span.name]
    assert of_cuda and cpp.end <= min(of_cuda)
    load(sources)  # nothing is left to do


@pytest.mark.ci
def test_a_cpp_unit_that_may_take_long_does_not_give_way(
    client: CudaDaemon, tmp_path: Path
) -> None:
    """What is compiled as it stands has the daemon's priority; what takes a second has less."""
    unit, main = package(tmp_path, 1)
    source = tmp_path / "frontend.cpp"
    source.write_text(f"#include <torch/types.h>\n{Path(main).read_text()}")
    own = psutil.Process(client.status()["pid"])
    assert _priorities(own, source.name, lambda: load([unit, str(source)])) == {own.nice()}
    client.wait_for_profiles()

    def inline() -> None:
        declared = f"inline int number() {{ return {next(_numbers)}; }}\n{DECLARATION}"
        warmcc.load_inline("beside", declared, cuda_sources=new_toy(), functions=["run"])

    inline()  # with what all extensions share
    assert _priorities(own, "main.cpp", inline) == {niceness_behind(own.nice())}


def _priorities(daemon: psutil.Process, source: str, work: Callable[[], object]) -> set[int]:
    """Those of the compilers proper of a C++ source, while something is done."""
    found, ended = set(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            for child in daemon.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if child.name() == "cc1plus" and any(source in w for w in child.cmdline()):
                        found.add(child.nice())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        work()
    finally:
        ended.set()
        looking.join()
    return found


def test_max_jobs_has_them_one_after_another(
    client: CudaDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    load(package(tmp_path, 3))
    spans = spans_of_last(client)
    by_unit = [[span for span in spans if f"unit{n}.cu" in span.name] for n in range(3)]
    assert not any(overlap(one, other) for one, other in itertools.combinations(by_unit, 2))


def test_after_a_failure_nothing_new_begins(
    client: CudaDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    with pytest.raises(CompileError) as caught:
        load(package(tmp_path, 4, wrong=1))
    assert 'identifier "undefined_name" is undefined' in str(caught.value)
    assert re.search(r"FAILED: \[code=\d\] unit1\.cuda\.o", str(caught.value))
    spans = spans_of_last(client)
    begun = {n for n in range(4) if any(f"unit{n}.cu" in span.name for span in spans)}
    assert {1} <= begun <= {0, 1}  # the longest one is first; another may begin while it waits


def test_what_was_right_is_not_compiled_again(client: CudaDaemon, tmp_path: Path) -> None:
    sources = package(tmp_path, 3, wrong=2)
    with pytest.raises(CompileError):
        load(sources)
    (tmp_path / "unit2.cu").write_text(UNIT.format(n=2, value="2.0f"))
    before = client.status()["units_reused"]
    load(sources)
    assert client.status()["units_reused"] > before


@pytest.mark.parametrize("hidden", [True, False], ids=["torch behind it", "nothing behind it"])
def test_a_units_own_header_is_looked_into(
    client: CudaDaemon, tmp_path: Path, hidden: bool
) -> None:
    """A unit that includes torch by way of it has the warm state of such units."""
    (tmp_path / "own.cuh").write_text(f"#pragma once\n{'#include <torch/types.h>' * hidden}\n")
    (unit,) = (Path(path) for path in package(tmp_path, 1) if path.endswith(".cu"))
    unit.write_text(f'#include "own.cuh"\n{unit.read_text()}')
    before = client.status()["accelerators"]["cuda"]["used"]
    load([str(unit), str(tmp_path / "main.cpp")])
    after = client.status()["accelerators"]["cuda"]["used"]
    assert after.get("lean", 0) - before.get("lean", 0) == hidden
