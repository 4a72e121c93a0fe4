"""Nothing changed, in a new process that has torch imported: from the call to the module, the same with the import of
``load_inline``, and the whole process.

The call includes all that the side does at its first call: warmcc's connection to the daemon and the imports for it,
stock's check of the compiler and its run of ninja.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness import Caller, Side, World, interleaved, new_toy, seconds
from benchmarks.results import Outcome, Target, pair

TITLE = "hit: nothing changed, new process"
REPEAT = 11
HIT_SECONDS = 0.010
HIT_RATIO = 20.0


@dataclass(frozen=True)
class Sample:
    call: float
    imported: float
    whole: float

    def __str__(self) -> str:
        return f"{seconds(self.call)} (whole process {seconds(self.whole)})"


def measure(repeat: int) -> Outcome:
    call = new_toy()
    # A hit uses no precompiled header; without one, none is built in the background while hits are measured.
    with World(pch="0") as world:

        def sample(side: Side) -> Sample:
            with Caller(world, side) as caller:
                taken = caller.make(side, call)
                return Sample(taken, caller.import_seconds + taken, caller.end())

        for side in ("stock", "warmcc"):
            sample(side)
        before, objects = world.counters(), world.stock_objects()
        taken = interleaved(repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")})
        facts = world.expect(before, hits=repeat, compiles=0)
        world.stock_compiles(objects, 0)
    stock, warmcc = taken["stock"], taken["warmcc"]
    headline = pair("", [one.call for one in stock], [one.call for one in warmcc])
    others = [
        pair("with the import of load_inline", [one.imported for one in stock], [one.imported for one in warmcc]),
        pair("the whole process, with torch's import", [one.whole for one in stock], [one.whole for one in warmcc]),
    ]
    ours = headline.warmcc.median
    ratio = headline.ratio
    targets = [
        Target(f"a hit takes {seconds(ours)}, under {seconds(HIT_SECONDS)}", ours < HIT_SECONDS),
        Target(f"stock takes {ratio:.2g} times as long as a hit, at least {HIT_RATIO:g}", ratio >= HIT_RATIO),
    ]
    return Outcome(headline, others, targets, facts)
