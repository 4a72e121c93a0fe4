"""A run of the benchmark of cases off the road: turns, states, results that are kept, and its
command.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import machine
from benchmarks.road import __main__ as cli
from benchmarks.road import foreign
from benchmarks.road.cases import CASES, EDIT, ERROR, FIRST, MOMENTS, NEW, SAME, Case, Job, Version
from benchmarks.road.ledger import Ledger, Unusable, put_aside
from benchmarks.road.measure import AGAIN, HITS, Sample, symbols
from benchmarks.road.runner import Plan, Run, estimate, restricted, spoken
from benchmarks.road.verdict import cells, wrong
from benchmarks.road.worlds import STARTED, STOCK, WARM, RoadWorld, counted, is_settled, way
from tests.benchmarks.samples import RIGHT, sample
from tests.support.calls import module_source

# ---------------------------------------------------------------------- a run, and going on with it


def plan(cases: list[Case], **changes: Any) -> Plan:
    return dataclasses.replace(
        Plan(cases, [STARTED], [machine.cores()], 1, prewarm_cuda=False), **changes
    )


def test_stock_and_states_take_turns_and_every_other_turn_goes_backwards() -> None:
    two = plan([CASES["cpp-O2"], CASES["cpp-O3"]], states=[STARTED, WARM], repeat=2)
    order = [(one.case.name, one.turn, one.side) for one in two.sequences()]
    assert order[:3] == [("cpp-O2", 0, STOCK), ("cpp-O2", 0, STARTED), ("cpp-O2", 0, WARM)]
    assert order[6:9] == [("cpp-O2", 1, WARM), ("cpp-O2", 1, STARTED), ("cpp-O2", 1, STOCK)]
    numbers = {(one.case.name, one.turn): one.number for one in two.sequences()}
    apart = sorted(numbers.values())
    assert all(later - earlier > 2 for earlier, later in itertools.pairwise(apart))


def test_the_estimate_shrinks_as_results_come_in() -> None:
    one = plan([CASES["wrong-cpp-name"], CASES["cuda-files-30"]], cores=[2], states=[STARTED])
    empty = Ledger({})
    part = Ledger({}, [sample(case="wrong-cpp-name", moment=ERROR)])
    assert estimate(one, empty) > estimate(one, part) > 0
    assert estimate(dataclasses.replace(one, cores=[1]), empty) > estimate(one, empty)
    fast = Ledger({}, [sample(case="wrong-cpp-name", moment=ERROR, seconds=1.0)])
    assert estimate(one, fast) < estimate(
        one, part
    )  # what was measured tells how fast this machine is
    assert (spoken(20), spoken(600), spoken(12000)) == (
        "about 1 min",
        "about 10 min",
        "about 3 h 20 min",
    )


def test_fewer_cores_are_given_to_all_that_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_JOBS", "7")
    allowed = os.sched_getaffinity(0)
    with restricted(1):
        seen = subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout
        assert (seen.strip(), os.environ["MAX_JOBS"]) == ("1", "1" if len(allowed) > 1 else "7")
    assert (os.sched_getaffinity(0), os.environ["MAX_JOBS"]) == (allowed, "7")


def test_a_ledger_is_read_as_it_was_written_and_goes_on_without_failures(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    facts = machine.facts() | {"commit": "abc"}
    Ledger(facts, [sample()], {"b": "Unsound: no"}, {"c": "no network"}).save(path)
    read = Ledger.read(path)
    assert (read.samples, read.failures, read.left_out) == (
        [sample()],
        {"b": "Unsound: no"},
        {"c": "no network"},
    )
    assert read.resumed(facts) == Ledger(facts, [sample()])
    assert read.resumed(
        facts | {"commit": "abc-dirty"}
    ).samples  # as a written file of results makes it
    with pytest.raises(Unusable, match=r"commit .* run without --resume"):
        read.resumed(facts | {"commit": "another"})
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]


def test_a_sequence_that_was_cut_short_is_measured_again() -> None:
    (stock, *_) = plan([CASES["cpp-O3"]]).sequences()
    whole = [sample(moment=moment, cores=stock.cores) for moment in CASES["cpp-O3"].moments]
    assert Ledger({}, whole).has(stock)
    assert not Ledger({}, whole[:-1]).has(stock)


def test_earlier_results_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "road.json"
    assert put_aside(path) is None
    path.write_text("{}")
    assert put_aside(path) == tmp_path / "road.before.json" and not path.exists()


def tiny(name: str, check: str = "module.answer() == {number}") -> Case:
    """An extension that builds in a second, as it has no header of torch's."""

    def make(_: Path, version: Version) -> Job:
        text = module_source(version.edited, version.name) + (
            "error here;" if version.mistake else ""
        )
        arguments = {"name": version.name, "cpp_sources": text, "no_implicit_headers": True}
        return Job("load_inline", arguments, check.format(number=version.edited))

    return Case(name, "", make, (1, 0))


class Cold(Run):
    """Warms nothing up: what it would make takes minutes, and is not what these tests are about."""

    def _world(self) -> RoadWorld:
        world = super()._world()
        world.environment["WARMCC_PREWARM"] = ""
        return world


@pytest.mark.slow
def test_a_run_measures_every_moment_on_both_sides_and_nothing_twice() -> None:
    case, saved = tiny("tiny"), [0]

    def keep() -> None:
        saved.append(len(ledger.samples))

    ledger = Ledger({})
    both = plan([case], states=[STARTED, WARM])
    Cold(both, ledger, keep).run()
    assert ledger.failures == {} and wrong(ledger.samples) == []
    assert saved == [0, *(count * len(case.moments) for count in (1, 2, 3))]
    counts = {(one.side, one.moment): len(one.seconds) for one in ledger.samples}
    assert {
        counts[side, moment] for side in (STOCK, STARTED, WARM) for moment in (FIRST, EDIT, ERROR)
    } == {1}
    assert {(counts[side, NEW], counts[side, SAME]) for side in (STOCK, STARTED, WARM)} == {
        (HITS, HITS * AGAIN)
    }
    ways = {one.moment: one.way for one in ledger.samples if one.side == STARTED}
    assert "way stock 1" in ways[FIRST] and ways[NEW].startswith("hit ")
    assert all(one.cpu > 0 for one in ledger.samples)
    assert {cell.moment for cell in cells(ledger.samples)} == set(MOMENTS)
    Cold(both, ledger, keep).run()
    assert len(saved) == 4


@pytest.mark.slow
def test_a_module_of_another_source_and_a_broken_case_are_named() -> None:
    def broken(*_: Any) -> Job:
        raise foreign.Missing("p==1 could not be downloaded: no network")

    bad = [
        tiny("lies", "False"),
        Case("gone", "", broken, (1, 0)),
        tiny("raises", "module.nothing"),
    ]
    bad = [dataclasses.replace(case, moments=(FIRST,)) for case in bad]
    ledger = Ledger({})
    Cold(plan(bad, states=[]), ledger, lambda: None).run()
    assert wrong(ledger.samples) == [
        f"lies, {FIRST}, stock, {machine.cores()} cores: the module is not of this source"
    ]
    assert ledger.left_out == {"gone": "p==1 could not be downloaded: no network"}
    assert [what.partition(",")[0] for what in ledger.failures] == ["raises"]
    assert "has no attribute 'nothing'" in next(iter(ledger.failures.values()))


# ---------------------------------------------------------------------- what the daemon says


def status(**changes: Any) -> dict[str, Any]:
    fresh = {"prewarming": 0, "flights": [], "profiles": [{"state": "ready"}],
             "accelerators": {"cuda": {"profiles": [{"state": "ready",
                 "no_warm_level": {}}]}}}  # fmt: skip
    return {**fresh, **changes}


@pytest.mark.parametrize(
    ("changes", "settled"),
    [
        ({}, True), ({"prewarming": 1}, False), ({"flights": [{}]}, False),
        ({"profiles": [{"state": "failed"}]}, True), ({"profiles": [{"state": "waiting"}]}, False),
        ({"profiles": [{"state": "building"}]}, False),
        ({"accelerators": {"cuda": {"profiles": [{"state": "ready",
            "no_warm_level": {"": "not warm yet"}}]}}}, False),
    ],
)  # fmt: skip
def test_a_daemon_is_warm_when_it_makes_nothing_more(
    changes: dict[str, Any], settled: bool
) -> None:
    assert is_settled(status(**changes)) == settled


def test_a_way_is_what_was_counted_in_between() -> None:
    assert (
        way({"hit": 1, "cuda exact": 2}, {"hit": 1, "cuda exact": 4, "PCH": 1})
        == "cuda exact 2, PCH 1"
    )


@pytest.mark.slow
def test_the_state_of_a_real_daemon_is_understood() -> None:
    world = RoadWorld(prewarm_cuda=False)
    with world:
        assert counted(world.status())["hit"] == 0
        world.wait_warming()
        assert not is_settled(world.status())
        assert world.processor_time() > 0


# ---------------------------------------------------------------------- the command


@pytest.fixture
def results(tmp_path: Path) -> Callable[..., Path]:
    def write(*samples: Sample, **more: Any) -> Path:
        path = tmp_path / "results.json"
        Ledger(machine.facts(), list(samples), **more).save(path)
        return path

    return write


def test_only_wrong_results_fail_a_run_and_slow_ones_when_checked(
    results: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    slow = results(sample(), sample(WARM, 12.0))
    assert cli.main(["--from", str(slow)]) == 0
    assert cli.main(["--from", str(slow), "--check"]) == 1
    assert cli.main(["--from", str(results(sample(), sample(WARM, 10.5))), "--check"]) == 0
    capsys.readouterr()
    assert (
        cli.main(["--from", str(results(sample(), sample(WARM, answer=RIGHT | {"right": False})))])
        == 1
    )
    assert "WRONG:\n  cpp-O3, first sight, warm, 2 cores: the module" in capsys.readouterr().out
    assert cli.main(["--from", str(results(sample(), failures={"x": "Unsound: no"}))]) == 1
    assert cli.main(["--from", str(results(sample(), left_out={"exllamav2": "no network"}))]) == 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--cases", "nonsense"], "--cases: there is no 'nonsense'; choose from: cpp-default"),
        (
            ["--states", "hot"],
            "--states: there is no 'hot'; choose from: just started, warming, warm",
        ),
        (["--cores", "0"], "--cores: '0' must be 'all' or a number from 1"),
        (["--cores", "two"], "--cores: 'two' must be 'all' or a number from 1"),
        (["--repeat", "0"], "--repeat 0: must be 1 or more"),
        (["--json", "/nowhere/x.json"], "there is no folder /nowhere"),
        (
            ["--from", "/nowhere/x.json"],
            "/nowhere/x.json cannot be read: No such file or directory",
        ),
    ],
)
def test_wrong_usage_is_exit_code_two(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_results_of_another_commit_and_other_files_are_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    for text, said in (
        ('{"a": 1}', "holds no results of this benchmark"),
        ("", "holds no results of this benchmark"),
    ):
        path.write_text(text)
        with pytest.raises(SystemExit):
            cli.main(["--resume", "--json", str(path)])
        assert said in capsys.readouterr().err
    Ledger(machine.facts() | {"torch": "2.4.0"}, [sample()]).save(path)
    with pytest.raises(SystemExit):
        cli.main(["--resume", "--json", str(path)])
    assert "of torch '2.4.0'" in capsys.readouterr().err
    assert Ledger.read(path).samples == [sample()]  # nothing was lost


def test_every_case_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(CASES)
    assert all(len(line) > 35 for line in listed)


_LIBRARY = """
#include <iostream>
#include <string>
{function} {{
  std::string line;
  std::getline(std::cin, line);
  std::cout << line << new char[3];
}}
"""


def test_exported_functions_are_the_librarys_own(tmp_path: Path) -> None:
    """A runtime that is linked in statically brings hundreds of its own."""

    def build(name: str, function: str, *options: str) -> str:
        source, library = tmp_path / f"{name}.cpp", tmp_path / f"{name}.so"
        source.write_text(_LIBRARY.format(function=function))
        subprocess.run(
            ["g++", "-shared", "-fPIC", *options, "-o", library, source], check=True
        )  # fmt: skip
        return symbols(str(library))

    usual = build("usual", "void f(std::string)")
    assert usual.startswith("1 ")
    assert build("static", "void f(std::string)", "-static-libstdc++") == usual
    assert build("other", "void g(std::string)") != usual
