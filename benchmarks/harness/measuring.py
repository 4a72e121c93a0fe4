"""Samples taken in turns, and what is said of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Unsound(RuntimeError):
    """A scenario did not measure what it says, or could not: its figures do not count."""


def say(text: str) -> None:
    """Talk goes to standard error; data to standard output."""
    print(text, file=sys.stderr, flush=True)


def seconds(value: float) -> str:
    """A time in three digits, in the unit that fits: ``21.9 s``, ``4.20 ms``, ``152 ns``."""
    if 0 < value < 9.995e-6:
        return f"{value * 1e9:.0f} ns" if value < 9.995e-7 else f"{value * 1e6:#.3g} µs"
    if value >= 0.9995:
        return f"{value:.0f} s" if value >= 99.95 else f"{value:#.3g} s"
    return f"{value * 1000:.0f} ms" if value >= 0.09995 else f"{value * 1000:#.3g} ms"


def interleaved(repeat: int, measures: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Take ``repeat`` samples of each measure, in turns, so that a noisy minute hits all alike.

    Every other round goes backwards (A B, B A, A B …): none is always the one that comes after
    another.
    """
    taken: dict[str, list[T]] = {name: [] for name in measures}
    for number in range(repeat):
        order = list(measures)
        for name in order if number % 2 == 0 else reversed(order):
            taken[name].append(measures[name]())
            say(f"  {number + 1}/{repeat} {name}: {_shown(taken[name][-1])}")
    return taken


def _shown(sample: Any) -> str:
    return seconds(sample) if isinstance(sample, float) else str(sample)
