"""An analysis on one screen."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from warmcc.client.analyze.building import NINJA
from warmcc.client.cli.display.output import duration, size

if TYPE_CHECKING:
    from warmcc.client.analyze.report import Analysis, Unit

_PROGRAMS, _HEADERS, _TEMPLATES, _FUNCTIONS = 8, 6, 4, 3
_WIDTH = 100


def show(found: Analysis) -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    console = Console(
        width=None if sys.stdout.isatty() else _WIDTH, highlight=False, soft_wrap=False
    )
    build = found.build
    console.print(
        Text.assemble(
            (found.name, "bold"), f": stock torch {found.torch} takes ",
            (duration(build.wall), "bold"),
            f" (user {duration(build.user)}, system {duration(build.system)}, largest process"
            f" {size(build.memory)})",
        )
    )  # fmt: skip
    console.print(_parts(found))
    console.print(_programs(found))
    for unit in found.units:
        _unit(console, unit)
    counted = found.importing
    console.print(
        f"Python: import torch opens {counted.opened} files, lists {counted.listed} folders and"
        f" looks {counted.looked} times whether a file is there; load_inline:"
        f" {found.calling.opened}, {found.calling.listed} and {found.calling.looked}"
    )
    if found.ours:
        steps = ", ".join(f"{one.name} {duration(one.end - one.start)}" for one in found.ours[:6])
        console.print(f"warmcc's last build of it: {duration(found.ours_seconds)} ({steps})")
    else:
        console.print("warmcc has not built it: `warmcc build` puts its steps beside these")
    console.print(
        Text(
            f"accounted for: {build.accounted:.1%} of the time; of the processors' time"
            f" {build.seen:.0%} is of processes that were seen",
            style="dim",
        )
    )
    console.print(Text("advice", style="bold"))
    for text in found.advice:
        console.print(Text(f"- {text}"))


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        table.add_column(title, justify="right" if number else "left", overflow="fold")
    return table


def _parts(found: Analysis) -> Table:
    table = _table("part of stock's build", "seconds", "share")
    build = found.build

    def row(name: str, seconds: float) -> None:
        table.add_row(name, f"{seconds:.2f}", f"{seconds / build.wall:.0%}")

    for one in build.phases:
        row(one.name, one.seconds)
        if one.name == NINJA:
            for step in build.steps:
                row(f"  {os.path.basename(step.output)}", step.seconds)
            row("  ninja itself", build.ninja)
    return table


def _programs(found: Analysis) -> Table:
    table = _table("program", "runs", "seconds", "processor", "memory")
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for one in found.build.processes:
        if one.name == "sh":  # ninja's, which only waits
            continue
        row = sums[one.name]
        row[0] += 1
        row[1] += one.end - one.start
        row[2] += one.user + one.system
        row[3] = max(row[3], one.memory)
    for name, (runs, wall, processor, memory) in sorted(sums.items(), key=lambda item: -item[1][2])[
        :_PROGRAMS
    ]:
        table.add_row(name, f"{runs:.0f}", f"{wall:.2f}", f"{processor:.2f}", size(memory))
    return table


def _unit(console: Console, unit: Unit) -> None:
    console.print(
        Text.assemble(
            (unit.source, "bold"), f": {unit.step:.2f} s; preprocessing {unit.preprocessing:.2f} s",
            *(
                f", {name.removeprefix('phase ')} {seconds:.2f} s"
                for name, seconds in unit.phases.items()
                if name.startswith("phase ") and seconds >= 0.005
            ),
        )
    )  # fmt: skip
    measured = any(one.parsing is not None for one in unit.headers)
    table = _table("headers of", "files", "kB", "reading s", "parsing s")
    for owner, (count, amount, reading, parsing) in unit.by_owner().items():
        table.add_row(
            owner, str(count), f"{amount / 1e3:.0f}", f"{reading:.2f}",
            f"{parsing:.2f}" if measured else "",
        )  # fmt: skip
    console.print(table)
    dearest = sorted(unit.headers, key=lambda one: -(one.reading + (one.parsing or 0)))
    if dearest:
        rows = (f"{one.name} {one.reading + (one.parsing or 0):.2f}" for one in dearest[:_HEADERS])
        console.print(Text(f"dearest headers: {', '.join(rows)}"))
    for one in unit.templates[:_TEMPLATES]:
        by = f", for {one.asked[:40]}" if one.asked else ""
        console.print(Text(f"template {one.seconds:.2f} s: {one.count} of {one.name[:70]}{by}"))
    for text in unit.not_measured:
        console.print(Text(f"not measured: {text}", style="dim"))
