"""A C++ source with flags that nothing is warm for, by a daemon that is warming up; in the same
turns by one that has nothing to warm, and by stock. What nobody waits for may cost who waits at
most a tenth.
"""

from __future__ import annotations

import time

from benchmarks.harness import Call, Caller, Side, Unsound, World, interleaved, new_number, seconds
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "a build beside warming"
REPEAT = 5

MOST = 1.10  # times as long as without
_BEGINS_SECONDS = 120.0


def make() -> Call:
    """With flags that no other call has."""
    number = new_number()
    text = f"int number() {{ return {number}; }}"
    flags = ["-O1", f"-falign-functions={1 + number % 4096}"]
    arguments = {"cpp_sources": text, "functions": ["number"], "extra_cflags": flags}
    return Call("load_inline", f"beside_{number}", arguments, f"module.number() == {number}")


def _sample(side: Side, *, warming: bool) -> float:
    """One call, to a daemon of its own: one that warms up would be in the way of the other
    turns.
    """
    with World(
        prewarm=";-O2;-O3" if warming else "", prewarm_cuda="0", pch="1" if warming else "0"
    ) as world:
        if warming:
            _wait(world)
        with Caller(world, side) as caller:
            taken = caller.make(side, make())
        if warming and not world.status()["prewarming"]:
            raise Unsound("the daemon was warm before the call ended")
        return taken


def _wait(world: World) -> None:
    """Until a precompiled header is being compiled."""
    deadline = time.monotonic() + _BEGINS_SECONDS
    while not any(one["state"] == "building" for one in world.status()["profiles"]):
        if time.monotonic() > deadline:
            raise Unsound(f"nothing is being warmed:\n{world.log_tail('daemon.log')}")
        time.sleep(0.1)
    time.sleep(3.0)  # it begins when the machine is quiet


def measure(repeat: int) -> Outcome:
    sides = {
        "stock": lambda: _sample("stock", warming=False),
        "warming": lambda: _sample("warmcc", warming=True),
        "free": lambda: _sample("warmcc", warming=False),
    }
    taken = interleaved(repeat, sides)
    found, beside = (
        pair("", taken["stock"], taken["warming"]),
        pair("without", taken["free"], taken["warming"]),
    )
    ours, theirs = beside.warmcc.median, beside.stock.median
    told = (
        f"{seconds(ours)} beside warming, {seconds(theirs)} without: {ours / theirs:.2f} "
        f"times, at most {MOST:.2f}"
    )
    return Outcome(found, [beside], [Target(told, ours <= MOST * theirs)])
