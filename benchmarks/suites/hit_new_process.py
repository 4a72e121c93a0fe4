"""Nothing changed, in a new process that has torch imported: the import of ``load_inline`` and the
call, to the module.

Both belong together: stock imports at once what warmcc imports at its first call. The call alone,
the next call of the same process and the whole process stand in rows of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from benchmarks.harness import Caller, Side, World, interleaved, new_toy, seconds
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "hit: nothing changed, new process"
REPEAT = 11
HIT_SECONDS = 0.010
HIT_RATIO = 20.0


@dataclass(frozen=True)
class Sample:
    """Seconds: the first call, the same with the import in front, a second call, the process from
    start to end.
    """

    call: float
    imported: float
    again: float
    whole: float

    def __str__(self) -> str:
        return f"{seconds(self.imported)} (whole process {seconds(self.whole)})"


def measure(repeat: int) -> Outcome:
    call = new_toy()
    # A hit uses no precompiled header; without one, none is built in the background while hits are
    # measured.
    with World(pch="0") as world:

        def sample(side: Side) -> Sample:
            with Caller(world, side) as caller:
                taken = caller.make(side, call)
                again = caller.make(side, call)
                return Sample(taken, caller.import_seconds + taken, again, caller.end())

        for side in ("stock", "warmcc", "warmcc"):  # built, and then watched
            sample(side)
        before, objects = world.counters(), world.stock_objects()
        taken = interleaved(
            repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")}
        )
        facts = world.expect_hits(
            before, most=repeat + repeat // 4
        )  # the next calls need no daemon
        world.stock_compiles(objects, 0)
    stock, warmcc = taken["stock"], taken["warmcc"]
    headline = pair("", [one.imported for one in stock], [one.imported for one in warmcc])
    others = [
        pair("the first call alone", [one.call for one in stock], [one.call for one in warmcc]),
        pair("the next call", [one.again for one in stock], [one.again for one in warmcc]),
        pair(
            "the whole process, with torch's import",
            [one.whole for one in stock],
            [one.whole for one in warmcc],
        ),
    ]
    hit = median([one.again for one in warmcc])
    ratio = headline.stock.median / hit
    targets = [
        Target(f"a hit takes {seconds(hit)}, under {seconds(HIT_SECONDS)}", hit < HIT_SECONDS),
        Target(
            f"stock in a new process takes {ratio:.2g} times as long as a hit, at least "
            f"{HIT_RATIO:g}",
            ratio >= HIT_RATIO,
        ),
    ]
    return Outcome(headline, others, targets, facts)
