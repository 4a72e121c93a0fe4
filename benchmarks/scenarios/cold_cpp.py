"""A C++ toy that nobody has built before (default headers, ``functions=``), in a new process that has torch imported:
from the call to the module.

Every sample has a source of its own, so that no cache can know it. warmcc is measured when its precompiled header is
ready; its very first request of all, without one and while one is being built, is measured too.
"""

from __future__ import annotations

from benchmarks.harness import Caller, Side, World, interleaved, new_toy, say, seconds
from benchmarks.results import Outcome, pair

TITLE = "cold: a C++ source never seen before"
REPEAT = 3  # a cold build costs stock about half a minute


def measure(repeat: int) -> Outcome:
    with World() as world:

        def sample(side: Side) -> float:
            with Caller(world, side) as caller:
                return caller.make(side, new_toy())

        first = sample("warmcc")
        say(f"  first request of all, no precompiled header yet: {seconds(first)}")
        waited = world.wait_for_pch()
        say(f"  waited {seconds(waited)} for the precompiled header")
        before, objects = world.counters(), world.stock_objects()
        taken = interleaved(repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")})
        facts = world.expect(before, compiles=repeat, pch_used=repeat, hits=0)
        world.stock_compiles(objects, repeat)
    return Outcome(
        pair("", taken["stock"], taken["warmcc"]),
        [pair("very first request, before the precompiled header is ready", taken["stock"], [first])],
        facts=facts,
    )
