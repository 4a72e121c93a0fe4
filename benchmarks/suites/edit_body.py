"""An edit of a function's body in an extension that was built before, same name and signature, in a
new process that has torch imported: from the call to the module.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import Caller, Side, World, interleaved, new_toy, seconds
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "edit: the body of a function"
REPEAT = 3
LIMIT_SECONDS = 0.9


def measure(repeat: int) -> Outcome:
    with World() as world:

        def sample(side: Side) -> float:
            with Caller(world, side) as caller:
                return caller.make(side, replace(new_toy(), name="edited"))

        world.wait_for_pch()
        for side in ("stock", "warmcc"):
            sample(side)
        before = world.counters()
        taken = interleaved(
            repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")}
        )
        facts = world.expect(
            before, compiles=repeat, units_reused=2 * repeat, pch_used=repeat, hits=0
        )
    found = pair("", taken["stock"], taken["warmcc"])
    ours = found.warmcc.median
    return Outcome(
        found,
        targets=[
            Target(f"{seconds(ours)}, at most {seconds(LIMIT_SECONDS)}", ours <= LIMIT_SECONDS)
        ],
        facts=facts,
    )
