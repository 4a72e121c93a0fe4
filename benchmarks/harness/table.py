"""A report as text: an aligned table for people, Markdown for the README."""

from __future__ import annotations

import os
import sys

from benchmarks.harness.machine import describe
from benchmarks.harness.measuring import seconds
from benchmarks.harness.results import Pair, Report, Series

HEADER = ("", "stock torch", "warmcc", "ratio")


def ratio(value: float) -> str:
    """``5.3×``, ``62×``: two digits are all that a ratio of such times can promise."""
    return (
        f"{value:.0f}×" if value >= 9.95 else f"{value:#.2g}×" if value < 0.995 else f"{value:.1f}×"
    )


def _cell(series: Series) -> str:
    if len(series.samples) == 1:
        return seconds(series.median)
    low, high = series.spread
    return f"{seconds(series.median)} ({seconds(low)} to {seconds(high)})"


def _row(title: str, pair: Pair) -> tuple[str, str, str, str]:
    return title, _cell(pair.stock), _cell(pair.warmcc), ratio(pair.ratio)


def rows(report: Report, indent: str = "  ") -> list[tuple[str, str, str, str]]:
    """Header, then a row for each pair; a scenario's other pairs are indented below its
    headline.
    """
    found = [HEADER]
    for result in report.results:
        found.append(_row(result.title, result.outcome.headline))
        found += [_row(indent + pair.label, pair) for pair in result.outcome.others]
    return found


def _notes(report: Report) -> list[str]:
    notes = [
        f"{'met' if t.met else 'MISSED'}: {t.text}"
        for result in report.results
        for t in result.outcome.targets
    ]
    return [*notes, *(f"FAILED: {failure.scenario}" for failure in report.failures)]


def as_text(report: Report) -> str:
    """Aligned columns (medians, with the smallest and the largest sample), targets and the
    machine.
    """
    table = rows(report)
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in table
    ]
    lines[0] = _bold(lines[0])
    return "\n".join([*lines, "", *_notes(report), describe(report.machine)])


def as_markdown(report: Report) -> str:
    """The same for a README: a table and, below it, the machine."""
    table = rows(report, indent="… ")
    lines = [f"| {' | '.join(row)} |" for row in table]
    lines.insert(1, "|---|--:|--:|--:|")
    return "\n".join(
        [
            *lines,
            "",
            f"Medians (smallest to largest sample) of one run. {describe(report.machine)}.",
        ]
    )


def _bold(text: str) -> str:
    plain = (
        not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    )
    return text if plain else f"\x1b[1m{text}\x1b[0m"
