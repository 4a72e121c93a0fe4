"""Nothing changed, asked for again in the process that built it: one process makes both sides'
calls in turns.

Stock compares the sources' text and loads the library again without a look at any header; warmcc
makes sure, from what its daemon has handed to the process, that no header or compiler changed
either.
"""

from __future__ import annotations

from benchmarks.harness import Caller, World, interleaved, new_toy
from benchmarks.harness.results import Outcome, pair

TITLE = "hit: nothing changed, same process"
REPEAT = 50


def measure(repeat: int) -> Outcome:
    call = new_toy()
    # A hit uses no precompiled header; without one, none is built in the background while hits are
    # measured.
    with World(pch="0") as world, Caller(world, "stock", "warmcc") as caller:
        for side in ("stock", "warmcc", "warmcc", "warmcc", "warmcc"):  # built, watched, remembered
            caller.make(side, call)
        before, objects = world.counters(), world.stock_objects()
        taken = interleaved(
            repeat,
            {
                "stock": lambda: caller.make("stock", call),
                "warmcc": lambda: caller.make("warmcc", call),
            },
        )
        facts = world.expect_hits(before, most=repeat // 4)
        world.stock_compiles(objects, 0)
    return Outcome(pair("", taken["stock"], taken["warmcc"]), facts=facts)
