"""Sixteen processes with torch imported ask at once for the same C++ toy, which nobody has built
before: until the last has its module, as in the first step of a distributed job.

Stock's processes have one build directory and wait for each other through its lock file. warmcc's
precompiled header is ready. What sixteen imports of torch cost is not part of it.
"""

from __future__ import annotations

import contextlib
import time

from benchmarks.harness import Caller, Side, World, interleaved, new_toy, say
from benchmarks.harness.results import Outcome, pair

TITLE = "sixteen processes at once, one new source"
REPEAT = 3
CLIENTS = 16


def measure(repeat: int) -> Outcome:
    with World() as world:
        world.wait_for_pch()

        def sample(side: Side) -> float:
            call = new_toy()
            with contextlib.ExitStack() as stack:
                say(f"  starting {CLIENTS} processes for {side}")
                unready = [
                    Caller(world, side) for _ in range(CLIENTS)
                ]  # all import torch at the same time
                callers = [stack.enter_context(caller) for caller in unready]
                released = time.perf_counter()
                for caller in callers:
                    caller.send(side, call)
                return max(caller.receive().ended for caller in callers) - released

        before, objects = world.counters(), world.stock_objects()
        taken = interleaved(
            repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")}
        )
        facts = world.expect(before, compiles=repeat, pch_used=repeat)
        world.stock_compiles(objects, repeat)
    return Outcome(pair("", taken["stock"], taken["warmcc"]), facts=facts)
