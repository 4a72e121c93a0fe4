"""What the scenarios of the sandbox share: the same call to a daemon with ``sandbox = true``, to
one without, and to stock, in turns. The units include nothing of torch: what is warm for them is
made in seconds, and what the sandbox costs for each step is a larger part of their time than of any
other's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness.callers import Call, Caller
from benchmarks.harness.measuring import Unsound, interleaved, seconds
from benchmarks.harness.results import Outcome, Target, pair
from benchmarks.harness.world import Side, World

MOST = 1.10  # times as long as without
_WARM_SECONDS = 300.0


def world(**settings: str) -> World:
    """Without precompiled headers, which none of these units has a use for, and for one
    architecture.
    """
    made = World(pch="0", prewarm="", sample_after="0", **settings)
    made.environment.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    return made


def measure(repeat: int, make: Callable[[], Call], level: str | None = None) -> Outcome:
    """No call is made twice. ``level`` is at which all units of CUDA have to be compiled. Raises
    Unsound.
    """
    confined, free = world(sandbox="1"), world()

    def sample(where: World, side: Side) -> float:
        with Caller(where, side) as caller:
            return caller.make(side, make())

    with confined, free:
        for where in (confined, free):
            sample(where, "warmcc")  # has what is warm made
            _wait(where)
            sample(where, "warmcc")
        before = [_cuda(where)["used"] for where in (confined, free)]
        sides = {
            "stock": lambda: sample(free, "stock"),
            "sandbox": lambda: sample(confined, "warmcc"),
            "free": lambda: sample(free, "warmcc"),
        }
        taken = interleaved(repeat, sides)
        for where, was in zip((confined, free), before, strict=True):
            grown = {name: count - was.get(name, 0) for name, count in _cuda(where)["used"].items()}
            if level is not None and grown.get(level, 0) != repeat:
                raise Unsound(f"units were compiled at the levels {grown}, and not all at {level}")
    found, beside = (
        pair("", taken["stock"], taken["sandbox"]),
        pair("without", taken["free"], taken["sandbox"]),
    )
    ours, theirs = beside.warmcc.median, beside.stock.median
    told = (
        f"{seconds(ours)} in the sandbox, {seconds(theirs)} without: {ours / theirs:.2f} "
        f"times, at most {MOST:.2f}"
    )
    return Outcome(found, [beside], [Target(told, ours <= MOST * theirs)])


def _cuda(where: World) -> dict[str, Any]:
    found: dict[str, Any] = where.status()["accelerators"]["cuda"]
    return found


def _wait(where: World) -> None:
    deadline = time.monotonic() + _WARM_SECONDS
    while any(profile["state"] == "building" for profile in _cuda(where)["profiles"]):
        if time.monotonic() > deadline:
            raise Unsound(f"CUDA does not get warm:\n{where.log_tail('daemon.log')}")
        time.sleep(0.2)
