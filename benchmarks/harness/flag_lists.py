"""What the scenarios with twelve lists of flags share: each list is new to a daemon that is warm
for the default flags; then each comes a second time, with another source, when it is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.harness.callers import Call, Caller
from benchmarks.harness.measuring import say, seconds
from benchmarks.harness.results import Outcome, Target, pair
from benchmarks.harness.world import Side, World

NEVER_SLOWER = 1.1  # times stock's time, each list

Flags = tuple[list[str], list[str]]  # for g++ and for nvcc


def measure(
    world: World,
    lists: Sequence[Flags],
    make: Callable[[Flags], Call],
    limits: tuple[float, float],
) -> Outcome:
    """``limits``: of stock's total time, at first and at second sight."""

    def sample(side: Side, flags: Flags) -> float:
        with Caller(world, side) as caller:
            took = caller.make(side, make(flags))
        say(f"  {_spoken(flags)}, {side}: {seconds(took)}")
        return took

    stock, first = [], []
    for flags in lists:
        stock.append(sample("stock", flags))
        first.append(sample("warmcc", flags))
    world.wait_idle()
    second = [sample("warmcc", flags) for flags in lists]
    ratios = [ours / theirs for ours, theirs in zip(first, stock, strict=True)]
    shares = [sum(ours) / sum(stock) for ours in (first, second)]
    said = zip(("first", "second"), shares, limits, strict=True)
    targets = [
        Target(
            f"{which} sight takes {share:.2f} of stock's time, at most {limit:g}", share <= limit
        )
        for which, share, limit in said
    ]
    slowest = max(ratios)
    text = f"the slowest list takes {slowest:.2f} times stock's time, at most {NEVER_SLOWER:g}"
    targets.append(Target(text, slowest <= NEVER_SLOWER))
    facts = {_spoken(flags): [stock[i], first[i], second[i]] for i, flags in enumerate(lists)}
    return Outcome(pair("", stock, first), [pair("second sight", stock, second)], targets, facts)


def _spoken(flags: Flags) -> str:
    host, device = (" ".join(one) or "default" for one in flags)
    return host if not flags[1] else f"{host} / {device}"
