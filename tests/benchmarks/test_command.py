"""The benchmarks' command: what it runs, prints, refuses and ends with."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as cli
from benchmarks.harness import (
    Unsound,
)
from benchmarks.harness.results import Outcome, Target, pair
from benchmarks.suites import Scenario, discover
from tests.support import ROOT


def scenario(name: str, measure: Callable[[int], Outcome], repeat: int = 3) -> Scenario:
    return Scenario(name, f"title of {name}", f"about {name}", repeat, measure)


def fixed(stock: float = 8.0, warmcc: float = 2.0, **more: Any) -> Callable[[int], Outcome]:
    return lambda repeat: Outcome(pair("", [stock] * repeat, [warmcc] * repeat), **more)


def raising(error: BaseException) -> Callable[[int], Outcome]:
    def measure(repeat: int) -> Outcome:
        raise error

    return measure


def run(*argv: str, **measures: Callable[[int], Outcome]) -> int:
    return cli.main(argv, {name: scenario(name, measure) for name, measure in measures.items()})


def test_a_failing_scenario_is_reported_and_the_others_still_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "out.json"
    code = run("--json", str(target), bad=raising(Unsound("the daemon fell over")), good=fixed())
    out, talk = capsys.readouterr()
    assert code == 1
    assert "bad FAILED: the daemon fell over" in talk
    assert "title of good" in out and "FAILED: bad" in out
    written = json.loads(target.read_text())
    assert [one["scenario"] for one in written["results"]] == ["good"]
    assert written["failures"] == [{"scenario": "bad", "reason": "Unsound: the daemon fell over"}]


@pytest.mark.parametrize("error", [OSError("disk full"), AssertionError("x"), KeyError("profiles")])
def test_no_kind_of_failure_passes(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(bad=raising(error)) == 1


def test_all_well_is_exit_code_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(good=fixed()) == 0


def test_a_missed_target_is_shown_and_fails_only_when_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missed = fixed(targets=[Target("a hit takes 20 ms, under 10 ms", False)])
    assert run(hit=missed) == 0
    assert "MISSED: a hit takes 20 ms" in capsys.readouterr().out
    assert run("--check", hit=missed) == 1
    assert run("--check", hit=fixed(targets=[Target("fine", True)])) == 0


def test_an_interruption_shows_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(good=fixed(), stopped=raising(KeyboardInterrupt()), later=fixed()) == 130
    out = capsys.readouterr().out
    assert "title of good" in out and "title of later" not in out


def test_repeat_replaces_the_scenarios_own_number(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[int] = []

    def measure(repeat: int) -> Outcome:
        asked.append(repeat)
        return fixed()(repeat)

    run(one=measure)
    run("--repeat", "7", one=measure)
    assert asked == [3, 7]


def test_only_the_named_scenarios_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("two", one=raising(AssertionError()), two=fixed()) == 0


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["--repeat", "0"],
        ["--repeat", "x"],
        ["--from", "/nowhere.json"],
        ["--json", "/nowhere/out.json"],
    ],
)
def test_wrong_usage_is_exit_code_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*argv, one=raising(AssertionError("must not run")))
    assert ended.value.code == 2
    assert "python -m benchmarks: error" in capsys.readouterr().err


def test_json_on_standard_output_is_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    run("--json", "-", good=fixed())
    out, talk = capsys.readouterr()
    assert json.loads(out)["results"][0]["headline"]["ratio"] == 4.0
    assert "title of good" in talk


def test_results_in_a_folder_are_named_by_the_machine_and_can_be_shown_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("--json", str(tmp_path), good=fixed())
    shown = capsys.readouterr().out
    (kept,) = tmp_path.iterdir()
    assert kept.name == f"{json.loads(kept.read_text())['machine']['class']}.json"
    assert run("--from", str(kept), good=raising(AssertionError("must not run"))) == 0
    assert capsys.readouterr().out == shown


def test_something_else_than_results_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(SystemExit) as ended:
        run("--from", str(tmp_path / "x.json"))
    assert ended.value.code == 2
    assert "no results of a run" in capsys.readouterr().err


def test_every_scenario_is_listed_with_what_it_measures() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {path.stem for path in (ROOT / "benchmarks" / "suites").glob("[a-z]*.py")}
    assert names == set(discover()) and len(names) >= 6
    for one in discover().values():
        assert one.name in found and len(one.about) > 40 and one.repeat > 0
