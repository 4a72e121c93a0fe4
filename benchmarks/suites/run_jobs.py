"""Short programs with torch, as many at a time as there are processors: a new python for each
(``subprocess``), and ``warmcc.Runner``. ``multiprocessing`` forks from a parent that has torch
imported: the same work without what makes a program a program (a main module, arguments, an
environment, a session, limits). Seconds per program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from benchmarks.harness import Unsound, interleaved
from benchmarks.harness.job_sides import sides
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "a short program with torch, of many"
REPEAT = 7
JOBS = 24
RATIO = 8.0
CODE = "import torch\nprint(int(torch.full((8, 8), {n}).sum()))"


def measure(repeat: int) -> Outcome:
    workers = len(os.sched_getaffinity(0))
    with sides(workers) as three:
        roads: dict[str, Callable[[Sequence[str]], list[str]]] = {
            "stock": three.by_subprocess, "multiprocessing": three.by_multiprocessing,
            "warmcc": three.by_runner,
        }  # fmt: skip
        measures = {name: lambda road=road: _seconds(road) for name, road in roads.items()}
        interleaved(1, measures)
        taken = interleaved(repeat, measures)
    headline = pair("", taken["stock"], taken["warmcc"])
    fork = pair("multiprocessing, fork", taken["multiprocessing"], taken["warmcc"])
    ratio = headline.ratio
    target = Target(f"{ratio:.3g} times faster, at least {RATIO:g}", ratio >= RATIO)
    facts = {
        "workers": workers, "jobs": JOBS,
        "jobs per second": {
            name: round(1 / pair("", samples, samples).stock.median, 2)
            for name, samples in taken.items()
        },
    }  # fmt: skip
    return Outcome(headline, [fork], [target], facts)


def _seconds(road: Callable[[Sequence[str]], list[str]]) -> float:
    """Per program. Raises Unsound for a wrong result."""
    began = time.monotonic()
    texts = road([CODE.format(n=n) for n in range(JOBS)])
    took = time.monotonic() - began
    if texts != [f"{64 * n}\n" for n in range(JOBS)]:
        raise Unsound(f"wrong results: {texts}")
    return took / JOBS
