"""Work units on executors that lose them. No daemon: the units here only write a store."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from warmcc.client.prebuild import run, work
from warmcc.client.prebuild.plan import Job
from warmcc.client.prebuild.results import Results
from warmcc.errors import DaemonUnavailable, PrebuildError

JOBS = [Job(n, f"n={n}", {"n": n}, f"m_{n}", {"n": n}, f"{n:064x}") for n in range(6)]
Unit = Callable[[str, str, dict[str, Any], str], dict[str, Any]]


@pytest.fixture(autouse=True)
def began(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each unit began."""
    found: Counter[int] = Counter()

    def unit(job: str, module: str, arguments: dict[str, Any], place: str) -> dict[str, Any]:
        found[arguments["n"]] += 1
        if arguments["n"] == 4:
            return {"error": "does not compile"}
        return {"digest": Results(place).put(f"object {arguments['n']}".encode()), "how": "miss"}

    monkeypatch.setattr(work, "build", unit)
    return found


class Losing(Executor):
    """Runs what it is given at once, and then loses it for the first ``times`` of each unit."""

    def __init__(self, lose: Callable[[str], None], times: int = 1) -> None:
        self._lose, self._times, self._seen = lose, times, Counter[str]()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._seen[args[1]] += 1
        try:
            result = fn(*args, **kwargs)
            if self._seen[args[1]] <= self._times:
                self._lose(args[3])
            future.set_result(result)
        except BaseException as error:
            future.set_exception(error)
        return future


def ends(place: str) -> None:
    raise BrokenProcessPool("a process ended")


def damages(place: str) -> None:
    for path in (Path(place) / "objects").iterdir():
        path.write_bytes(b"damaged")


def ground(executor: Executor, tmp_path: Path, attempts: int = 3) -> run.Ground:
    return run.Ground(
        executor, str(tmp_path / "store"), Results(str(tmp_path / "draft")), 4, attempts
    )


@pytest.mark.parametrize("lose", [ends, damages])
def test_lost_units_begin_again(
    lose: Callable[[str], None], tmp_path: Path, began: Counter[int]
) -> None:
    place = ground(Losing(lose), tmp_path)
    found = {job.number: record for job, record in run.records(JOBS, place)}
    assert sorted(found) == list(range(6))
    assert found[4] == {"error": "does not compile"}
    for number in (0, 1, 2, 3, 5):
        assert place.draft.get(found[number]["digest"]) == f"object {number}".encode()
        assert began[number] == 2 or lose is damages


def test_units_that_are_lost_again_and_again_end_the_run(
    tmp_path: Path, began: Counter[int]
) -> None:
    with pytest.raises(PrebuildError, match=r"was lost 3 times.*BrokenProcessPool") as caught:
        list(run.records(JOBS, ground(Losing(ends, 9), tmp_path)))
    assert "run it again to go on" in str(caught.value)
    assert isinstance(caught.value.__cause__, BrokenProcessPool)
    assert max(began.values()) == 3


def test_an_executor_that_has_ended(tmp_path: Path) -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(PrebuildError, match="takes no more work: RuntimeError"):
        list(run.records(JOBS, ground(pool, tmp_path)))


def test_no_daemon_is_told_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unit(*_: object) -> dict[str, Any]:
        raise DaemonUnavailable("not running")

    monkeypatch.setattr(work, "build", unit)
    with (
        ThreadPoolExecutor(2) as pool,
        pytest.raises(DaemonUnavailable, match=r"^not running$"),
    ):
        list(run.records(JOBS, ground(pool, tmp_path, attempts=1)))


def test_what_has_not_begun_does_not_begin(tmp_path: Path, began: Counter[int]) -> None:
    with ThreadPoolExecutor(1) as pool:
        records = run.records(JOBS, ground(pool, tmp_path))
        next(records)
        records.close()
    assert sum(began.values()) <= 5


def test_the_first_one_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all variants share is made once, by the first."""
    first_ended, early = threading.Event(), []

    def unit(job: str, module: str, arguments: dict[str, Any], place: str) -> dict[str, Any]:
        if arguments["n"] == 0:
            time.sleep(0.2)
            first_ended.set()
        elif not first_ended.is_set():
            early.append(module)
        return {"digest": Results(place).put(b"object"), "how": "miss"}

    monkeypatch.setattr(work, "build", unit)
    with ThreadPoolExecutor(4) as pool:
        place = replace(ground(pool, tmp_path), first_alone=True)
        assert len(list(run.records(JOBS, place))) == len(JOBS)
    assert early == []
