"""Time per call: samples of many calls each, taken in turns of all rows, as ``timeit`` does it."""

from __future__ import annotations

import contextlib
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PERCENTILES = (5, 50, 95, 99)
_SAMPLE_SECONDS = 200e-6  # at least, so that reading the clock is no part of it
_MOST_CALLS = 20_000
_WARM_UP = 20


@dataclass
class Row:
    """One thing that is called. ``samples`` are seconds per call. ``around`` holds while it is
    called, and ``settle`` runs before and after each sample, outside of the time."""

    name: str
    about: str
    function: Callable[..., Any]
    arguments: Sequence[Any] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    settle: Callable[[], Any] | None = None
    measured: Callable[[], float] | None = None  # gives seconds per call, in place of a timer
    calls: int = 1
    samples: list[float] = field(default_factory=list)
    failure: str = ""

    def timer(self) -> timeit.Timer:
        """For the call as one writes it: ``f(a0, a1, name=k0)``."""
        space = {"f": self.function}
        words = []
        for number, value in enumerate(self.arguments):
            space[f"a{number}"] = value
            words.append(f"a{number}")
        for number, (name, value) in enumerate(self.keywords.items()):
            space[f"k{number}"] = value
            words.append(f"{name}=k{number}")
        return timeit.Timer(f"f({', '.join(words)})", globals=space)


def sample(rows: Sequence[Row], count: int, mark: Callable[[str], Any] | None = None) -> None:
    """Take ``count`` samples of each row, in turns; every other turn goes backwards. ``mark`` gives
    a context for the calls of a row. A row that raises is left out from then on, with why."""
    timers = {}
    for row in rows:
        with _guarded(row), row.around():
            timers[row.name] = timer = row.timer()
            _settle(row)
            row.calls = 1 if row.measured is not None else _calls(timer)
            _settle(row)
    for number in range(count):
        for row in rows if number % 2 == 0 else reversed(rows):
            if row.failure:
                continue
            named = mark(row.name) if mark is not None else contextlib.nullcontext()
            with _guarded(row), row.around(), named:
                if row.measured is not None:
                    _settle(row)
                    row.samples.append(row.measured())
                    continue
                # the other rows have been in the processor's caches
                timers[row.name].timeit(min(_WARM_UP, row.calls))
                _settle(row)
                took = timers[row.name].timeit(row.calls)
                _settle(row)
                row.samples.append(took / row.calls)


def call_for(row: Row, seconds: float) -> None:
    """Call it for some time, for a profiler. Raises whatever it raises."""
    timer, end = row.timer(), time.perf_counter() + seconds
    with row.around():
        while time.perf_counter() < end:
            timer.timeit(100)
    _settle(row)


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """By name, such as ``p95``; the nearest sample.

    >>> percentiles([3.0, 1.0, 2.0])
    {'p5': 1.0, 'p50': 2.0, 'p95': 3.0, 'p99': 3.0}
    """
    ordered = sorted(samples)
    last = len(ordered) - 1
    found = {f"p{one}": ordered[round(last * one / 100)] for one in PERCENTILES}
    return found | {"p50": statistics.median(ordered)}


def _calls(timer: timeit.Timer) -> int:
    """How many calls make a sample: as many as take long enough."""
    timer.timeit(_WARM_UP)
    calls = 1
    while calls < _MOST_CALLS:
        took = timer.timeit(calls)
        if took >= _SAMPLE_SECONDS:
            break
        wanted = _SAMPLE_SECONDS / max(took / calls, 1e-9) * 1.1
        calls = min(_MOST_CALLS, max(calls * 2, min(calls * 10, int(wanted) + 1)))
    return calls


def _settle(row: Row) -> None:
    if row.settle is not None:
        row.settle()


@contextlib.contextmanager
def _guarded(row: Row) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        row.failure = f"{type(error).__name__}: {error}".partition("\n")[0]
        row.samples.clear()
