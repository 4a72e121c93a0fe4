"""Are two series of pairs the same? The ratio of medians, a sign test, and a bootstrap interval."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

DRAWS = 2000


@dataclass(frozen=True)
class Comparison:
    """``ratio`` is warmcc's median by python's, ``low`` and ``high`` the interval that holds the
    median of the pairs' ratios with 95 %; ``p`` is the sign test's, ``slower`` counts the pairs in
    which warmcc took longer. Times are in seconds."""

    python: float
    warmcc: float
    ratio: float
    low: float
    high: float
    p: float
    slower: int
    pairs: int


def compare(python: Sequence[float], warmcc: Sequence[float]) -> Comparison:
    """Of times taken in pairs. Raises ValueError for series that are empty or of other lengths."""
    if not python or len(python) != len(warmcc):
        raise ValueError("the series are no pairs")
    ratios = [other / one for one, other in zip(python, warmcc, strict=True)]
    low, high = interval(ratios)
    return Comparison(
        statistics.median(python), statistics.median(warmcc),
        statistics.median(warmcc) / statistics.median(python), low, high, sign_test(ratios),
        sum(one > 1 for one in ratios), len(ratios),
    )  # fmt: skip


def sign_test(ratios: Sequence[float]) -> float:
    """How probable signs at least as uneven are, if both sides were equal (two-sided).

    >>> round(sign_test([1.1] * 9 + [0.9]), 4), sign_test([1.0, 1.0])
    (0.0215, 1.0)
    """
    above, below = sum(one > 1 for one in ratios), sum(one < 1 for one in ratios)
    count = above + below
    tail = sum(math.comb(count, k) for k in range(min(above, below) + 1))
    return min(1.0, 2 * tail / 2**count)


def interval(ratios: Sequence[float], draws: int = DRAWS) -> tuple[float, float]:
    """The interval of 95 % for the median, by drawing again from the sample. Equal samples give
    equal intervals."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(draws * 0.025)], medians[int(draws * 0.975)]
