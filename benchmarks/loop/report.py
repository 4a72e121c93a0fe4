"""What a run of the loop says: kernels per minute on both sides, times by what came, the share of
each level, and why a unit was not at a faster one."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import seconds
from benchmarks.loop.draw import REPEAT, Drawn
from benchmarks.loop.run import Run

_LEAN = ("lean", "torch-free")


def figures(
    draw: Sequence[Drawn], stock: Run | None, warmcc: Run, cuda: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """``cuda``: the daemon's counts of units by level, and of reasons why they were not faster.

    Both sides are compared over the calls that both made, as the sum of their times in callers:
    callers of both are equally many and never wait for anything else.
    """
    ours = {one.number: one for one in warmcc.samples}
    found: dict[str, Any] = {
        "calls": len(warmcc.samples),
        "kernels per minute, warmcc": warmcc.per_minute,
        "levels": dict(cuda["used"]),
        "not faster": dict(cuda["not_faster"]),
        "warmcc, median seconds": _by_kind(draw, warmcc),
        "not as drawn": _unexpected(draw, warmcc),
    }
    if stock is not None:
        both = sum(ours[one.number].seconds for one in stock.samples)
        found |= {
            "calls by stock": len(stock.samples),
            "kernels per minute, stock": stock.per_minute,
            "stock's time over warmcc's": sum(one.seconds for one in stock.samples) / both,
            "stock, median seconds": _by_kind(draw, stock),
            "other outcomes": [
                one.number
                for one in stock.samples
                if bool(one.error) != bool(ours[one.number].error)
            ],
            "slower than stock": {
                str(one.number): [one.seconds, ours[one.number].seconds]
                for one in stock.samples
                if ours[one.number].seconds > 1.1 * one.seconds
            },
        }
    medians = found["warmcc, median seconds"]
    if "right" in medians and "wrong" in medians:
        found["error over success"] = medians["wrong"] / medians["right"]
    units = sum(cuda["used"].values())
    found["share lean"] = sum(cuda["used"].get(name, 0) for name in _LEAN) / max(units, 1)
    return found


def rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same for people: a name and a value each."""
    lines = [("LOOP", "")]
    for name, value in found.items():
        if isinstance(value, Mapping):
            lines += [(f"{name}: {key}", _shown(name, one)) for key, one in value.items()]
        else:
            lines.append((name, _shown(name, value)))
    return lines


def _shown(name: str, value: Any) -> str:
    if isinstance(value, float):
        return seconds(value) if "seconds" in name else f"{value:.3g}"
    if isinstance(value, list) and name == "slower than stock":
        return " / ".join(map(seconds, value))
    return str(value)


def _by_kind(draw: Sequence[Drawn], run: Run) -> dict[str, float]:
    by: dict[str, list[float]] = defaultdict(list)
    for one in run.samples:
        drawn = draw[one.number]
        came = "repeat" if drawn.kind == REPEAT else "wrong" if one.error else "right"
        by[came].append(one.seconds)
        if came != "repeat":
            by[drawn.wrong if one.error else drawn.kind].append(one.seconds)
    return {name: statistics.median(taken) for name, taken in by.items()}


def _unexpected(draw: Sequence[Drawn], run: Run) -> dict[str, str]:
    """Calls that failed without a mistake, or the other way round: the draw is wrong, or a side."""
    return {
        str(one.number): one.error[-400:] or "no error"
        for one in run.samples
        if bool(one.error) != bool(draw[one.number].wrong)
    }
