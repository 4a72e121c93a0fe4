"""Callers that make the calls of a draw, side by side, each the next one that nobody has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.harness import say, seconds
from benchmarks.harness.callers import Call, Caller
from benchmarks.harness.world import Side, World
from benchmarks.loop.draw import Drawn


@dataclass(frozen=True)
class Sample:
    """What came of call ``number``: its seconds, and the text of its error, "" where a module
    came."""

    number: int
    seconds: float
    error: str


@dataclass(frozen=True)
class Run:
    """All calls by one side. ``seconds`` are those from the first call to the last answer."""

    side: str
    samples: list[Sample]
    seconds: float

    @property
    def per_minute(self) -> float:
        return 60 * len(self.samples) / self.seconds


def run(
    world: World,
    side: Side,
    calls: Sequence[Drawn],
    callers: int,
    until: Callable[[], bool] = lambda: False,
) -> Run:
    """Have ``callers`` processes make the calls, until there is none left or ``until`` says so."""
    waiting, lock = list(reversed(calls)), threading.Lock()
    samples: list[Sample] = []

    def next_one() -> Drawn | None:
        with lock:
            return waiting.pop() if waiting and not until() else None

    def work(caller: Caller) -> None:
        while (drawn := next_one()) is not None:
            caller.send(side, _call(drawn))
            try:
                answer = caller.answer()
            except BaseException:
                waiting.clear()  # the others end as well
                raise
            samples.append(Sample(drawn.number, answer.seconds, answer.error))
            _tell(side, drawn, answer.seconds, answer.error)

    everyone = [Caller(world, side) for _ in range(callers)]
    try:
        for caller in everyone:
            caller.__enter__()
        began = time.perf_counter()
        with ThreadPoolExecutor(callers) as pool:
            for one in [pool.submit(work, caller) for caller in everyone]:
                one.result()
        took = time.perf_counter() - began
    finally:
        for caller in everyone:
            caller.__exit__()
    return Run(side, sorted(samples, key=lambda one: one.number), took)


def _call(drawn: Drawn) -> Call:
    arguments = {name: value for name, value in drawn.arguments.items() if name != "name"}
    return Call("load_inline", drawn.arguments["name"], arguments, drawn.check)


def _tell(side: str, drawn: Drawn, took: float, error: str) -> None:
    what = f"{drawn.kind}, {drawn.kernel}" + (f", {drawn.wrong}" if drawn.wrong else "")
    came = "" if bool(error) == bool(drawn.wrong) else f": {error[-300:] or 'no error'}"
    say(f"  {side} {drawn.number}: {seconds(took)} ({what}){came}")
