"""The benchmark of cases off the road: what it builds, what it makes of figures, and that nothing
wrong passes.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import subprocess
import tarfile
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import machine
from benchmarks.road import foreign, table, texts
from benchmarks.road.cases import CASES, EDIT, ERROR, FIRST, SHORT, Case, Job, Version
from benchmarks.road.ledger import Ledger
from benchmarks.road.measure import first_message
from benchmarks.road.verdict import cells, wrong
from benchmarks.road.worlds import STARTED, STATES, STOCK, WARM, WARMING
from tests.benchmarks.samples import REFUSED, RIGHT, sample

FOREIGN = ("deepspeed", "exllama")
GENERATED = [case for name, case in CASES.items() if not name.startswith(FOREIGN)]


# ---------------------------------------------------------------------- what is built


def test_every_case_brings_flags_of_its_own(tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    for case in GENERATED:
        arguments = case.make(tmp_path, Version("x", 1, 1)).arguments
        flags = json.dumps(
            [arguments.get("extra_cflags"), arguments.get("extra_cuda_cflags"), case.is_cuda]
        )
        if case.moments != (ERROR,):
            assert flags not in seen, (
                f"{case.name} has the flags of {seen.get(flags)}: its first call is no first sight"
            )
            seen[flags] = case.name
    assert set(SHORT) <= set(CASES)
    assert {
        len([c for c in CASES if c.startswith(f"wrong-{kind}-")]) for kind in ("cpp", "cuda")
    } == {8}


def written(
    case: Case, folder: Path, version: Version
) -> tuple[Job, dict[str, str], dict[str, int]]:
    job = case.make(folder, version)
    files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return (
        job,
        {n: p.read_text() for n, p in files.items()},
        {n: p.stat().st_mtime_ns for n, p in files.items()},
    )


@pytest.mark.parametrize("case", GENERATED, ids=lambda case: case.name)
def test_an_edit_changes_one_source_and_so_does_a_mistake(case: Case, tmp_path: Path) -> None:
    job, texts_before, times_before = written(case, tmp_path, Version("x", 1000, 1000))
    edited, texts_after, times_after = written(case, tmp_path, Version("x", 1000, 1002))
    mistaken, texts_wrong, _ = written(case, tmp_path, Version("x", 1000, 1002, case.mistake))
    if job.function == "load":
        assert sum(texts_before[name] != texts_after[name] for name in texts_before) == 1
        assert (
            sum(times_before[name] != times_after[name] for name in times_before) == 1
        )  # others are not touched
        assert sum(texts_wrong[name] != texts_after[name] for name in texts_wrong) == 1
        assert len(job.arguments["sources"]) == len(texts_before) - 1  # all but the header
    else:
        assert edited.arguments != job.arguments and mistaken.arguments != edited.arguments
    assert job.check != edited.check == mistaken.check


def test_a_mistake_that_a_language_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no such mistake in C\\+\\+: ptx"):
        texts.function("C++", "f", 1, "ptx")


def test_a_stamp_tells_which_text_a_library_is_of(tmp_path: Path) -> None:
    library = tmp_path / "x.so"
    source = tmp_path / "x.cpp"
    source.write_text(texts.stamp("a/x.cpp", 1007, None))
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    known = {"module": types.SimpleNamespace(__file__=str(library)), "ctypes": ctypes}
    assert eval(texts.check_stamps({"a/x.cpp": 1007}), known)
    assert not eval(texts.check_stamps({"a/x.cpp": 1008}), known)
    source.write_text(texts.stamp("a/x.cpp", 1007, "name"))
    done = subprocess.run(["g++", "-c", "-o", os.devnull, source], capture_output=True, text=True)
    assert "road_undeclared" in first_message(done.stderr)


# ---------------------------------------------------------------------- others' packages


def package(name: str = "some-package-that-nobody-has==1.0", **changes: Any) -> foreign.Package:
    return dataclasses.replace(
        foreign.CPU_ADAM, pinned=name, sources=("csrc/a.cpp",), folders=("csrc",), **changes
    )


def test_a_package_that_cannot_be_had_is_said_with_pips_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        foreign.Missing, match="could not be downloaded: ERROR: No matching distribution found for"
    ):
        foreign.unpacked(package())
    assert not list(foreign.cache().iterdir())  # nothing half done stays


def test_a_package_is_found_again_and_must_have_its_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = foreign.cache() / package().pinned / "csrc"
    folder.mkdir(parents=True)
    with pytest.raises(foreign.Missing, match=r"lacks csrc/a\.cpp; remove that folder"):
        foreign.unpacked(package())
    for name in ("a.cpp", "a.h", "a.txt"):
        (folder / name).write_text("")
    assert sorted(package().files(foreign.unpacked(package()))) == ["csrc/a.cpp", "csrc/a.h"]


def test_archives_are_unpacked_without_the_folder_around_them(tmp_path: Path) -> None:
    (tmp_path / "p-1.0/csrc").mkdir(parents=True)
    (tmp_path / "p-1.0/csrc/a.cpp").write_text("// a")
    with tarfile.open(tmp_path / "p-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "p-1.0", "p-1.0")
    with zipfile.ZipFile(tmp_path / "p-1.0.whl", "w") as wheel:
        wheel.write(tmp_path / "p-1.0/csrc/a.cpp", "csrc/a.cpp")
    for name in ("p-1.0.tar.gz", "p-1.0.whl"):
        foreign._unpack(tmp_path / name, tmp_path / f"{name}.files")
        assert (tmp_path / f"{name}.files/csrc/a.cpp").read_text() == "// a"


# ---------------------------------------------------------------------- what figures come to


@pytest.mark.parametrize(
    ("ours", "slower", "over"),
    [(5.0, False, False), (10.0, False, False), (10.9, True, False), (11.2, True, True)],
)
def test_a_cell_is_slower_below_one_and_over_beyond_the_limit(
    ours: float, slower: bool, over: bool
) -> None:
    (cell,) = cells([sample(), sample(WARM, ours)])
    assert (cell.is_slower, cell.is_over) == (slower, over)
    text = table.as_text(Ledger(machine.facts(), [sample(), sample(WARM, ours, way="way stock 1")]))
    assert ("Slower than stock" in text) == slower
    assert ("more than 1.1 times" in text, "within 1.1 times" in text) == (
        over,
        slower and not over,
    )
    if slower:
        assert "cpp-O3, first sight, warm, 2 cores: " in text and "; way stock 1" in text
    strong = "**0.89×**" in table.as_markdown(
        Ledger(machine.facts(), [sample(), sample(WARM, ours)])
    )
    assert strong == over


def test_a_cell_is_of_the_medians_of_all_turns_and_stock_is_shared_by_the_states() -> None:
    stock = [sample(seconds=value, turn=turn) for turn, value in enumerate((10.0, 30.0, 20.0))]
    ours = [sample(side, seconds=4.0, turn=turn) for side in STATES for turn in range(3)]
    found = cells([*stock, *ours])
    assert [cell.state for cell in found] == [STARTED, WARMING, WARM]
    assert {cell.pair.ratio for cell in found} == {5.0}
    assert {cell.busy for cell in found} == {(0.4, 2.0)}
    assert cells(ours) == []  # without stock's side there is nothing to say


def test_the_table_has_a_row_for_each_case_and_wrong_code_apart() -> None:
    samples = [sample(side, moment=moment) for side in (STOCK, WARM) for moment in (FIRST, ERROR)]
    samples += [sample(side, moment=ERROR, case="wrong-cpp-name") for side in (STOCK, WARM)]
    ledger = Ledger(machine.facts(), samples, {"a, b": "Unsound: no"}, {"exllamav2": "no network"})
    lines = table.as_markdown(ledger).splitlines()
    assert "| cpp-O3 | 10.0 s: - / - / 1.0× | 10.0 s: - / - / 1.0× |" in lines
    assert "| wrong-cpp-name | 10.0 s: - / - / 1.0× |" in lines
    assert (
        "**2 cores, wrong code**" in lines
        and "- a, b: Unsound: no" in lines
        and "- exllamav2: no network" in lines
    )


def test_packages_tell_how_many_cores_were_busy() -> None:
    samples = [sample(side, case="cpp-files-30", cpu=19.0) for side in (STOCK, WARM)]
    assert table.busy(Ledger({}, samples)) == ["cpp-files-30, warm, 2 cores: 1.9, stock 1.9"]
    assert table.busy(Ledger({}, [sample(), sample(WARM)])) == []


@pytest.mark.parametrize(
    ("moment", "answer", "reason"),
    [
        (FIRST, RIGHT | {"right": False}, "the module is not of this source"),
        (FIRST, RIGHT | {"symbols": "3 abd"}, "exports functions 3 abd, stock 2 abc"),
        (EDIT, REFUSED, "raised RuntimeError: 'x' was not declared"),
        (ERROR, RIGHT, "a mistake was built without an error"),
        (ERROR, REFUSED | {"message": "'y'"}, "says \"'y'\", stock \"'x' was not declared\""),
        (
            ERROR,
            REFUSED | {"classes": ["ValueError", "Exception"]},
            "raises ValueError, stock RuntimeError",
        ),
    ],
)
def test_nothing_wrong_passes(moment: str, answer: dict[str, Any], reason: str) -> None:
    fine = [sample(moment=moment), sample(WARM, moment=moment)]
    assert wrong(fine) == []
    assert wrong([fine[0], dataclasses.replace(fine[1], answer=answer)]) == [
        f"cpp-O3, {moment}, warm, 2 cores: {reason}"
    ]
    derived = dataclasses.replace(
        fine[1], answer=REFUSED | {"classes": ["CompileError", "RuntimeError", "Exception"]}
    )
    assert moment != ERROR or wrong([fine[0], derived]) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Error building extension 'x': /a/main.cpp:3:1: error: 'q' was not declared\n  more",
            "'q' was not declared"),
        ("/a/main.cpp:3:10: fatal error: q.h: No such file or directory",
            "q.h: No such file or directory"),
        ('/a/cuda.cu(4): error: identifier "q" is undefined', 'identifier "q" is undefined'),
        ("ptxas /tmp/x.ptx, line 30; error   : Not a name of any known instruction: 'q'",
         "Not a name of any known instruction: 'q'"),
        ("/a/x.so: undefined symbol: _Z1qv", "undefined symbol: _Z1qv"),
    ],
)  # fmt: skip
def test_the_first_message_of_every_compiler(text: str, message: str) -> None:
    assert first_message(text) == message
