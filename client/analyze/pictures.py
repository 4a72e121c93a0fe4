"""An analysis for a browser: a Chrome trace, and one page of HTML that needs no other file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from warmcc.client.analyze.report import Analysis, Unit
from warmcc.client.stock.processes import Process

_PAGE = Path(__file__).with_name("page.html")
_MOST_BOXES = 3000  # of a unit's include tree, those that take most
_MOST_ROWS = 40
_CODE, _AS_CODE = re.compile(r"`([^`]+)`"), r"<code>\1</code>"
_PLACE = re.compile(r"@([A-Z]+)@")


def chrome(found: Analysis) -> dict[str, Any]:
    """The trace event format's complete events, in microseconds: stock's phases, steps and
    processes, and warmcc's steps from the same moment on."""
    events: list[dict[str, Any]] = []

    def add(
        name: str, kind: str, start: float, end: float, process: int, row: int, **more: Any
    ) -> None:
        events.append(
            {
                "name": name, "cat": kind, "ph": "X", "ts": round(start * 1e6),
                "dur": max(1, round((end - start) * 1e6)), "pid": process, "tid": row, "args": more,
            }
        )  # fmt: skip

    for one in found.build.phases:
        add(one.name, "phase", one.start, one.end, 1, 1)
    for number, row in enumerate(_rows(found.build.processes), 2):
        for process in row:
            add(
                process.name, "process", process.start, process.end, 1, number,
                command=" ".join(process.words), user=process.user, system=process.system,
                memory=process.memory,
            )  # fmt: skip
    for number, span in enumerate(found.ours, 1):
        add(span.name, span.step, span.start, span.end, 2, number)
    names = {1: "stock torch", 2: "warmcc"} if found.ours else {1: "stock torch"}
    naming = [
        {
            "name": "process_name", "ph": "M", "pid": number,
            "args": {"name": f"{side}: {found.name}"},
        }
        for number, side in names.items()
    ]  # fmt: skip
    return {"traceEvents": [*naming, *events], "displayTimeUnit": "ms"}


def _rows(processes: Iterable[Process]) -> list[list[Process]]:
    """Processes in rows, each below the one that started it."""
    rows: list[list[Process]] = []
    place: dict[int, int] = {}
    for one in sorted(processes, key=lambda one: (one.start, -one.end)):
        row = place.get(one.parent, -1) + 1
        while row < len(rows) and rows[row][-1].end > one.start:
            row += 1
        if row >= len(rows):
            row = len(rows)
            rows.append([])
        rows[row].append(one)
        place[one.pid] = row
    return rows


def page(found: Analysis) -> str:
    """The page as text."""
    data = {
        "wall": found.build.wall,
        "phases": [[one.name, one.start, one.end] for one in found.build.phases],
        "rows": [
            [
                [one.name, one.start, one.end, one.user, one.system, one.memory,
                 " ".join(one.words)[:400]]
                for one in row
            ]
            for row in _rows(found.build.processes)
        ],
        "ours": [[one.name, one.start, one.end] for one in found.ours],
        "units": [_unit(unit) for unit in found.units],
    }  # fmt: skip
    # "</" would end the script that the data stands in
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "TITLE": escape(f"{found.name}: {found.build.wall:.1f} s with stock torch {found.torch}"),
        "ADVICE": "".join(f"<li>{_CODE.sub(_AS_CODE, escape(one))}</li>" for one in found.advice),
        "TABLES": _tables(found),
        "DATA": text,
    }
    # In one pass: what is put in may look like a place, too
    return _PLACE.sub(lambda match: parts[match[1]], _PAGE.read_text(encoding="utf-8"))


def _unit(unit: Unit) -> dict[str, Any]:
    """A unit's include tree as rows of [name, owner, parent, reading, parsing, size]; small nodes
    are a part of their parents."""
    inclusive = [node.seconds for node in unit.tree]
    for place in range(len(unit.tree) - 1, -1, -1):
        if (parent := unit.tree[place].parent) >= 0:
            inclusive[parent] += inclusive[place]
    least = sorted(inclusive, reverse=True)[_MOST_BOXES - 1 :][:1] or [0.0]
    kept: dict[int, int] = {}
    rows: list[list[Any]] = []
    seen: set[int] = set()
    for place, node in enumerate(unit.tree):
        one = unit.headers[node.header]
        is_first = node.header not in seen
        seen.add(node.header)
        size, parsing = (one.size, one.parsing or 0.0) if is_first else (0, 0.0)
        parent = kept.get(node.parent, -1)
        if node.parent < 0 or (inclusive[place] >= least[0] and node.parent in kept):
            kept[place] = len(rows)
            rows.append([one.name, one.owner, parent, node.seconds, parsing, size])
        else:
            while node.parent >= 0 and node.parent not in kept:
                node = unit.tree[node.parent]
            if (parent := kept.get(node.parent, -1)) >= 0:
                rows[parent][3] += unit.tree[place].seconds
                rows[parent][4] += parsing
                rows[parent][5] += size
    return {"name": unit.source, "nodes": rows}


def _tables(found: Analysis) -> str:
    """The figures as tables, which need neither sight of colours nor a script."""
    phases = [(one.name, f"{one.seconds:.2f}") for one in found.build.phases]
    parts = [_table("Stock's build, part by part", ("part", "seconds"), phases)]
    dearest = sorted(found.build.processes, key=lambda one: one.start - one.end)[:_MOST_ROWS]
    parts.append(
        _table(
            "Processes", ("program", "start", "seconds", "user", "system", "MB"),
            [
                (one.name, f"{one.start:.2f}", f"{one.end - one.start:.2f}", f"{one.user:.2f}",
                 f"{one.system:.2f}", f"{one.memory / 1e6:.0f}")
                for one in dearest
            ],
        )
    )  # fmt: skip
    for unit in found.units:
        rows = sorted(unit.headers, key=lambda one: -(one.reading + (one.parsing or 0)))
        parts.append(
            _table(
                f"Dearest headers of {unit.source}",
                ("header", "whose", "reading", "parsing", "kB", "times"),
                [
                    (one.name, one.owner, f"{one.reading:.3f}",
                     "" if one.parsing is None else f"{one.parsing:.3f}", f"{one.size / 1e3:.0f}",
                     str(one.count))
                    for one in rows[:_MOST_ROWS]
                ],
            )
        )  # fmt: skip
        if unit.templates:
            parts.append(
                _table(
                    f"Dearest templates of {unit.source}",
                    ("template", "times", "seconds", "asked for by"),
                    [
                        (one.name, str(one.count), f"{one.seconds:.3f}",
                         one.asked)
                        for one in unit.templates
                    ],
                )
            )  # fmt: skip
    return "".join(parts)


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = "".join(f'<th scope="col">{escape(one)}</th>' for one in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(one)}</td>" for one in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}"><table>'
        f"<caption>{escape(title)}</caption><thead><tr>{cells}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def as_json(found: Analysis) -> dict[str, Any]:
    """Plain values."""
    data: dict[str, Any] = msgspec.to_builtins(found)
    return data
