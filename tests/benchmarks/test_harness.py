"""The benchmarks' own arithmetic and manners: a wrong median or a swallowed failure would spoil
every claim.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.harness import (
    Call,
    Caller,
    Unsound,
    World,
    callers,
    interleaved,
    plain_environment,
    seconds,
    table,
)
from benchmarks.harness.results import Failure, Outcome, Report, Result, Series, Target, pair

MACHINE = {
    "class": "2-core-test", "cpu": "Test CPU", "cores": 2, "memory_gib": 4, "system": "Linux",
    "python": "3.11.0", "torch": "2.12.0", "compiler": "c++ 12", "warmcc": "0.1.0", "commit": "",
    "taken": "2026-01-02T03:04:05Z", "load": 0.0,
}  # fmt: skip


# ---------------------------------------------------------------------- statistics


def test_samples_are_taken_in_turns_and_every_other_round_backwards() -> None:
    order: list[str] = []

    def taking(name: str) -> Callable[[], float]:
        def take() -> float:
            order.append(name)
            return float(len(order))

        return take

    taken = interleaved(3, {"stock": taking("stock"), "warmcc": taking("warmcc")})
    assert order == ["stock", "warmcc", "warmcc", "stock", "stock", "warmcc"]
    assert taken == {"stock": [1.0, 4.0, 5.0], "warmcc": [2.0, 3.0, 6.0]}


def test_one_failing_sample_fails_the_measurement() -> None:
    def fail() -> float:
        raise Unsound("no")

    with pytest.raises(Unsound):
        interleaved(1, {"stock": lambda: 1.0, "warmcc": fail})


@pytest.mark.parametrize(
    ("samples", "median", "spread"),
    [
        ([3.0], 3.0, (3.0, 3.0)),
        ([9.0, 1.0, 2.0], 2.0, (1.0, 9.0)),
        ([4.0, 1.0, 2.0, 100.0], 3.0, (1.0, 100.0)),
    ],
)
def test_median_and_spread(
    samples: list[float], median: float, spread: tuple[float, float]
) -> None:
    series = Series(samples)
    assert (series.median, series.spread) == (median, spread)
    assert series.samples == samples  # in the order in which they were taken


def test_a_series_without_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        Series([])


def test_the_ratio_is_stocks_median_by_warmccs() -> None:
    assert pair("", [30.0, 20.0, 1000.0], [5.0, 3.0, 4.0]).ratio == 7.5
    assert pair("", [1.0], [4.0]).ratio == 0.25  # slower is said, too


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (123.4, "123 s"), (21.94, "21.9 s"), (1.0, "1.00 s"), (0.9996, "1.00 s"),
        (0.9994, "999 ms"), (0.1, "100 ms"), (0.0421, "42.1 ms"), (0.0042, "4.20 ms"),
        (0.000174, "0.174 ms"), (9.996e-6, "0.0100 ms"), (4.2e-6, "4.20 µs"), (1.52e-7, "152 ns"),
    ],
)  # fmt: skip
def test_times_have_three_digits(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(541.2, "541×"), (9.96, "10×"), (2.64, "2.6×"), (0.996, "1.0×"), (0.384, "0.38×")],
)
def test_ratios_have_two_digits_or_none_behind_the_point(value: float, text: str) -> None:
    assert table.ratio(value) == text


# ---------------------------------------------------------------------- reports


def a_report() -> Report:
    outcome = Outcome(
        pair("", [20.0, 30.0], [4.0, 6.0]),
        [pair("first", [20.0], [25.0])],
        [Target("under 10 s", True)],
        {"compiles": 2},
    )
    return Report(MACHINE, [Result("cold", "cold build", outcome)], [Failure("hit", "Unsound: no")])


def test_a_report_survives_json() -> None:
    report = a_report()
    assert Report.of_plain(json.loads(json.dumps(report.plain()))) == report


def test_json_has_all_samples_medians_and_ratios() -> None:
    headline = a_report().plain()["results"][0]["headline"]
    assert headline["stock"] == {"median": 25.0, "low": 20.0, "high": 30.0, "samples": [20.0, 30.0]}
    assert headline["ratio"] == 5.0


def test_the_table_names_what_failed_and_the_machine() -> None:
    text = table.as_text(a_report())
    assert "\x1b" not in text  # standard output is no terminal here
    row = next(line for line in text.splitlines() if line.startswith("cold build"))
    assert (
        " ".join(row.split())
        == "cold build 25.0 s (20.0 s to 30.0 s) 5.00 s (4.00 s to 6.00 s) 5.0×"
    )
    assert "  first" in text and "0.80×" in text
    assert "met: under 10 s" in text and "FAILED: hit" in text and "Test CPU" in text


def test_markdown_has_a_cell_for_each_column() -> None:
    lines = table.as_markdown(a_report()).splitlines()
    assert lines[1] == "|---|--:|--:|--:|"
    assert (
        lines[2] == "| cold build | 25.0 s (20.0 s to 30.0 s) | 5.00 s (4.00 s to 6.00 s) | 5.0× |"
    )
    assert {line.count("|") for line in lines[:4]} == {5}


def test_the_picture_shows_medians_and_ratios_and_is_drawn_equal_twice(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.harness.plot import draw

    report = a_report()
    png, svg = draw(report, tmp_path / "one")
    again = draw(report, tmp_path / "two")[1]
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert svg.read_text() == again.read_text()
    for text in ("cold build", "25.0 s", "5.00 s", "5.0×", "Test CPU"):
        assert f"<!-- {text}" in svg.read_text() or text in svg.read_text(), text
    with pytest.raises(ValueError, match="nothing to draw"):
        draw(Report(MACHINE), tmp_path)


# ---------------------------------------------------------------------- the command


# ---------------------------------------------------------------------- the harness


def test_a_measured_process_keeps_nothing_that_makes_the_sides_unequal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/somewhere")
    monkeypatch.setenv("WARMCC_DISABLE", "1")
    found = plain_environment()
    assert not {"TORCH_EXTENSIONS_DIR", "PYTHONDONTWRITEBYTECODE"} & set(found)
    assert not [name for name in found if name.startswith("WARMCC_")]
    assert found["CCACHE_DISABLE"] == found["TORCH_NO_COMPILER_WRAPPER"] == "1"


def test_a_world_has_a_daemon_of_its_own_and_leaves_nothing_behind() -> None:
    with World(prewarm="") as world:
        status = world.status()
        before = world.counters()
        assert status["socket"].startswith(world.environment["WARMCC_RUNTIME_DIR"])
        assert world.expect(before, compiles=0, hits=0) == {"compiles": 0, "hits": 0}
        with pytest.raises(Unsound, match="counted"):
            world.expect(before, compiles=1)
        folders = [world.folder, Path(world.environment["WARMCC_RUNTIME_DIR"])]
        assert all(folder.is_dir() for folder in folders)
    assert not any(folder.exists() for folder in folders)
    with pytest.raises(ProcessLookupError):
        os.kill(status["pid"], 0)


def test_a_daemon_that_cannot_start_is_said_so_and_leaves_nothing_behind() -> None:
    world = World(jobs="many")
    with pytest.raises(Unsound, match="jobs"), world:
        pass
    assert not world.folder.exists()


def test_stocks_compiles_are_counted_by_its_objects() -> None:
    with World(prewarm="") as world:
        one = world.build_folder("stock", "a") / "main.o"
        one.write_text("")
        before = world.stock_objects()
        world.stock_compiles(before, 0)
        (world.build_folder("stock", "b") / "main.o").write_text("")
        os.utime(one, (1, 1))
        world.stock_compiles(before, 2)
        with pytest.raises(Unsound, match="stock compiled 2 objects, not 0"):
            world.stock_compiles(before, 0)


SCRIPT = """
import json, subprocess, sys
print(json.dumps({"import": 0.5}), flush=True)
for line in sys.stdin:
    call = json.loads(line)
    if call["arguments"]["name"] == "crash": sys.exit("it crashed")
    if call["arguments"]["name"] == "spawn":
        subprocess.Popen(["sleep", "54321"], start_new_session=True)
    right = call["check"] == "yes"
    told = {"started": 1.0, "ended": 3.5, "right": right, "error": ""}
    print(json.dumps(told), flush=True)
"""


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A Caller whose process answers at once: what is tested is what the harness makes of
    answers.
    """
    (tmp_path / "caller.py").write_text(SCRIPT)
    monkeypatch.setattr(callers, "CALLER", tmp_path / "caller.py")
    world = World()
    with Caller(world, "stock") as one:
        yield one
    world.__exit__()


def test_a_call_takes_what_its_process_says_and_must_be_right(caller: Any) -> None:
    assert caller.import_seconds == 0.5
    assert caller.make("stock", Call("load", "fine", {}, "yes")) == 2.5
    with pytest.raises(Unsound, match="this is false: no"):
        caller.make("stock", Call("load", "wrong", {}, "no"))
    assert caller.end() > 0


def test_a_process_that_crashes_is_shown(caller: Any) -> None:
    with pytest.raises(Unsound, match="it crashed"):
        caller.make("stock", Call("load", "crash", {}, "yes"))


def test_a_process_is_ended_with_all_that_it_started(caller: Any) -> None:
    caller.make("stock", Call("load", "spawn", {}, "yes"))
    deadline = time.monotonic() + 10
    started: list[psutil.Process] = []
    while (
        not started and time.monotonic() < deadline
    ):  # the answer may be quicker than the program's start
        started = [
            one
            for one in psutil.process_iter(["cmdline"])
            if one.info["cmdline"] == ["sleep", "54321"]
        ]
    assert started
    caller.__exit__()
    assert not psutil.wait_procs(started, timeout=5)[1]


def test_the_first_picture_shows_figures_that_were_measured(tmp_path: Path) -> None:
    from benchmarks import headline

    results = Path(headline.__file__).parent / "results"
    sources = [
        str(results / name) for name in ("2-core-amd-epyc.json", "road-2-core-amd-epyc.json")
    ]
    assert headline.main([*sources, str(tmp_path)]) == 0
    pictures = sorted(path.name for path in tmp_path.iterdir())
    assert pictures == ["headline-dark.svg", "headline-light.svg"]
    docs = Path(headline.__file__).parents[1] / "docs" / "images"
    for name in pictures:
        assert (tmp_path / name).read_text() == (docs / name).read_text(), (
            "run python -m benchmarks.headline"
        )


def test_no_first_picture_without_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import headline

    some, road = tmp_path / "some.json", tmp_path / "road.json"
    some.write_text('{"results": []}')
    road.write_text('{"samples": []}')
    assert headline.main([str(some), str(road), str(tmp_path)]) == 1
    assert "has no result of cold_cpp" in capsys.readouterr().err
    whole = Path(headline.__file__).parent / "results" / "2-core-amd-epyc.json"
    assert headline.main([str(whole), str(road), str(tmp_path)]) == 1
    assert "has no result of cuda-O3-fast" in capsys.readouterr().err
    assert headline.main([]) == 2
