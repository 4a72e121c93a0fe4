"""How data is shown: as JSON, or as aligned text.
Colour is used only on a terminal without NO_COLOR.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any


def as_json(data: Any) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


def bold(text: str) -> str:
    plain = (
        not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    )
    return text if plain else f"\x1b[1m{text}\x1b[0m"


def talk(text: str) -> None:
    """What is for the person and not for a pipe."""
    print(text, file=sys.stderr)


def size(count: float) -> str:
    """Bytes as people read them: ``786 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return (
                f"{count:.0f} {unit}"
                if unit in ("B", "kB") or count >= 100
                else f"{count:.1f} {unit}"
            )
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """A time span as people read it: ``3 h 12 min``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {rest} s"
    return f"{seconds:.1f} s" if seconds >= 1 or not seconds else f"{seconds * 1000:.0f} ms"


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows in aligned columns; ``right`` names the columns that are aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ]
        line = "  ".join(cells).rstrip()
        print(bold(line) if number == 0 else line)
