"""The table of a run, as text and as Markdown: a row for each case, a column for each moment."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.harness import seconds
from benchmarks.harness.machine import describe
from benchmarks.harness.table import ratio
from benchmarks.road.cases import CASES, ERROR, FIRST, MOMENTS
from benchmarks.road.ledger import Ledger
from benchmarks.road.verdict import LIMIT, Cell, cells, wrong
from benchmarks.road.worlds import STATES

_NONE = "-"


def _cell(found: list[Cell], strong: str) -> str:
    """``67 s: 0.54 / 0.9 / 3.1×``: stock's time, then how many times less each state takes."""
    if not found:
        return _NONE
    by_state = {cell.state: cell for cell in found}
    shown = [_ratio(by_state[state], strong) if state in by_state else _NONE for state in STATES]
    return f"{seconds(found[0].pair.stock.median)}: {' / '.join(shown)}"


def _ratio(cell: Cell, strong: str) -> str:
    text = ratio(cell.pair.ratio)
    return f"{strong}{text}{strong}" if cell.is_over else text


def rows(found: Iterable[Cell], strong: str = "") -> list[list[str]]:
    """Header, then a row for each case; ``strong`` stands around what is more than the limit
    slower.
    """
    by_case: dict[str, dict[str, list[Cell]]] = {}
    for cell in found:
        by_case.setdefault(cell.case, {}).setdefault(cell.moment, []).append(cell)
    wanted = [
        moment for moment in MOMENTS if any(moment in moments for moments in by_case.values())
    ]
    return [
        ["case", *wanted],
        *(
            [name, *(_cell(moments.get(one, []), strong) for one in wanted)]
            for name, moments in by_case.items()
        ),
    ]


def _tables(ledger: Ledger) -> Iterable[tuple[str, list[Cell]]]:
    """For each number of cores those with all moments, then the mistakes alone."""
    found = cells(ledger.samples)
    whole = {cell.case for cell in found if cell.moment != ERROR}
    for cores in sorted({cell.cores for cell in found}):
        for title, chosen in (("", True), (", wrong code", False)):
            kept = [
                cell for cell in found if cell.cores == cores and (cell.case in whole) == chosen
            ]
            if kept:
                yield f"{cores} {'core' if cores == 1 else 'cores'}{title}", kept


def _slower(cell: Cell) -> str:
    over = (
        f"more than {LIMIT:g} times stock's time"
        if cell.is_over
        else f"within {LIMIT:g} times stock's time"
    )
    times = f"{seconds(cell.pair.warmcc.median)}, stock {seconds(cell.pair.stock.median)}"
    how = f"; {cell.way}" if cell.way else ""
    return (
        f"{cell.case}, {cell.moment}, {cell.state}, {cell.cores} cores: {times}, "
        f"{ratio(cell.pair.ratio)}, {over}{how}"
    )


def slower(ledger: Ledger) -> list[str]:
    """Every cell below 1, by name, the worst first."""
    return [
        _slower(cell)
        for cell in sorted(cells(ledger.samples), key=lambda c: c.pair.ratio)
        if cell.is_slower
    ]


def busy(ledger: Ledger) -> list[str]:
    """Whether every core was used where there was work for them: processor seconds for each second
    of a first call.
    """
    return [
        f"{c.case}, {c.state}, {c.cores} cores: {c.busy[1]:g}, stock {c.busy[0]:g}"
        for c in cells(ledger.samples)
        if c.moment == FIRST and c.case in CASES and sum(CASES[c.case].units) > 2
    ]


def _notes(ledger: Ledger) -> dict[str, list[str]]:
    return {
        "Slower than stock": slower(ledger),
        "Cores busy at first sight": busy(ledger),
        "WRONG": wrong(ledger.samples),
        "FAILED": [f"{what}: {why}" for what, why in ledger.failures.items()],
        "Left out": [f"{name}: {why}" for name, why in ledger.left_out.items()],
    }


LEGEND = (
    f"A cell: stock's median, then how many times less warmcc takes ({', '.join(STATES)}); "
    f"below 1 it takes longer."
)


def as_text(ledger: Ledger) -> str:
    """Aligned tables, then what is slower, wrong, failed or left out."""
    lines = []
    for title, found in _tables(ledger):
        table = rows(found)
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        lines += [
            title,
            *(
                "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))
                for row in table
            ),
            "",
        ]
    for title, notes in _notes(ledger).items():
        if notes:
            lines += [f"{title}:", *(f"  {note}" for note in notes), ""]
    return "\n".join([*lines, LEGEND, describe(ledger.machine)])


def as_markdown(ledger: Ledger) -> str:
    """The same for a page of the documentation; what takes more than the limit is bold."""
    lines = []
    for title, found in _tables(ledger):
        head, *body = rows(found, "**")
        lines += [
            f"**{title}**",
            "",
            _line(head),
            f"|---|{'--:|' * (len(head) - 1)}",
            *map(_line, body),
            "",
        ]
    for title, notes in _notes(ledger).items():
        if notes:
            lines += [f"{title}:", "", *(f"- {note}" for note in notes), ""]
    return "\n".join([*lines, f"{LEGEND} {describe(ledger.machine)}."])


def _line(row: list[str]) -> str:
    return f"| {' | '.join(row)} |"
