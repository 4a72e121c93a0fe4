"""What a run found: samples, and what is made of them (medians, ratios, spread), as values and as
JSON.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Series:
    """Samples of one thing, in seconds, in the order in which they were taken."""

    samples: list[float]

    def __post_init__(self) -> None:
        if not self.samples:
            raise ValueError("a series needs at least one sample")

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest sample: with few samples, anything else would promise too
        much.
        """
        return min(self.samples), max(self.samples)

    def plain(self) -> dict[str, Any]:
        low, high = self.spread
        return {"median": self.median, "low": low, "high": high, "samples": self.samples}


@dataclass(frozen=True)
class Pair:
    """The same job done by both sides in one run. ``label`` tells it from the scenario's other
    pairs.
    """

    label: str
    stock: Series
    warmcc: Series

    @property
    def ratio(self) -> float:
        """How many times less warmcc takes: stock's median by warmcc's."""
        return self.stock.median / self.warmcc.median

    def plain(self) -> dict[str, Any]:
        return {
            "label": self.label, "ratio": self.ratio, "stock": self.stock.plain(),
            "warmcc": self.warmcc.plain(),
        }  # fmt: skip


def pair(label: str, stock: Sequence[float], warmcc: Sequence[float]) -> Pair:
    return Pair(label, Series(list(stock)), Series(list(warmcc)))


@dataclass(frozen=True)
class Target:
    """What a figure has to reach, in words, and whether it did in this run."""

    text: str
    met: bool


@dataclass(frozen=True)
class Outcome:
    """What a scenario measured: the pair that it is about, and others that explain it.

    ``facts`` are counts that the daemon reported and the scenario checked (compiles, hits …).
    """

    headline: Pair
    others: list[Pair] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """An outcome with the name and the title of its scenario."""

    scenario: str
    title: str
    outcome: Outcome

    def plain(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "title": self.title,
            "headline": self.outcome.headline.plain(),
            "others": [one.plain() for one in self.outcome.others],
            "targets": [{"text": one.text, "met": one.met} for one in self.outcome.targets],
            "facts": self.outcome.facts,
        }

    @staticmethod
    def of_plain(data: dict[str, Any]) -> Result:
        """The reverse of ``plain``. Medians and ratios are made anew from the samples."""

        def read(one: dict[str, Any]) -> Pair:
            return pair(one["label"], one["stock"]["samples"], one["warmcc"]["samples"])

        outcome = Outcome(
            read(data["headline"]),
            [read(one) for one in data["others"]],
            [Target(one["text"], one["met"]) for one in data["targets"]],
            data["facts"],
        )
        return Result(data["scenario"], data["title"], outcome)


@dataclass(frozen=True)
class Failure:
    """A scenario that gave no figures, and why."""

    scenario: str
    reason: str


@dataclass(frozen=True)
class Report:
    """One run of the benchmarks on one machine."""

    machine: dict[str, Any]
    results: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "results": [one.plain() for one in self.results],
            "failures": [{"scenario": one.scenario, "reason": one.reason} for one in self.failures],
        }

    @staticmethod
    def of_plain(data: dict[str, Any]) -> Report:
        """The reverse of ``plain``. Raises KeyError or TypeError for anything else."""
        return Report(
            data["machine"],
            [Result.of_plain(one) for one in data["results"]],
            [Failure(one["scenario"], one["reason"]) for one in data["failures"]],
        )
