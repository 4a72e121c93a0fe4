"""``python -m benchmarks.headline RESULTS.json ROAD.json FOLDER``: the README's first picture, from
figures that were measured (``python -m benchmarks`` and ``python -m benchmarks.road``).

A few pairs of bars on a linear scale, in large letters and one narrow column, for a phone as well;
once for a light ground and once for a dark one.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from benchmarks.harness import seconds
from benchmarks.harness.results import Result
from benchmarks.harness.table import ratio
from benchmarks.road.cases import FIRST

ROWS = {
    "cold_cpp": "C++, never built before",
    "cuda_toy": "CUDA, never built before",
    "cuda_extension_header": "CUDA with torch/extension.h",
    "edit_body": "C++, one line edited",
}
NAME = "headline"
WIDTH, LEFT, BAR, ROW = 520, 14, 20, 92
# A case of benchmarks.road: what the first call with these flags takes.
ROAD_CASE, ROAD_STATE = "cuda-O3-fast", "just started"
ROAD_TITLE = "CUDA, -O3 --use_fast_math"
COLOURS = {
    "light": {
        "ink": "#1f2328", "stock": "#8c959f", "on stock": "#1f2328",
        "warmcc": "#d1431b", "on warmcc": "#ffffff",
    },
    "dark": {
        "ink": "#e6edf3", "stock": "#6e7681", "on stock": "#ffffff",
        "warmcc": "#ff7b54", "on warmcc": "#1f2328",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One pair of bars; ``stock`` and ``warmcc`` are seconds."""

    title: str
    stock: float
    warmcc: float


def chosen(results: Path, road: Path) -> list[Row]:
    """The rows of the picture, in their order. Raises OSError, ValueError where one was not
    measured.
    """
    found = {
        one["scenario"]: one for one in json.loads(results.read_text(encoding="utf-8"))["results"]
    }
    if missing := [name for name in ROWS if name not in found]:
        raise ValueError(
            f"{results} has no result of {', '.join(missing)}: measure it first (python -m "
            "benchmarks NAME)"
        )
    pairs = [(title, Result.of_plain(found[name]).outcome.headline) for name, title in ROWS.items()]
    rows = [Row(title, pair.stock.median, pair.warmcc.median) for title, pair in pairs]
    return [*rows, _with_other_flags(road)]


def _with_other_flags(road: Path) -> Row:
    sides: dict[str, list[float]] = {"stock": [], ROAD_STATE: []}
    for one in json.loads(road.read_text(encoding="utf-8"))["samples"]:
        if one["case"] == ROAD_CASE and one["moment"] == FIRST and one["side"] in sides:
            sides[one["side"]] += one["seconds"]
    if not all(sides.values()):
        raise ValueError(
            f"{road} has no result of {ROAD_CASE}: measure it first (python -m benchmarks.road "
            "--short)"
        )
    return Row(ROAD_TITLE, statistics.median(sides["stock"]), statistics.median(sides[ROAD_STATE]))


def drawn(rows: Sequence[Row], colours: dict[str, str]) -> str:
    """The picture as SVG."""
    scale = (WIDTH - 2 * LEFT - 90) / max(one.stock for one in rows)
    height = ROW * len(rows) + 26
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="17" fill="{colours["ink"]}">',
        "<title>Seconds per build, stock torch beside warmcc</title>",
    ]
    for place, one in enumerate(rows):
        top = ROW * place + 24
        lines.append(f'<text x="{LEFT}" y="{top}" font-weight="600">{escape(one.title)}</text>')
        times = ratio(one.stock / one.warmcc)
        lines += _bar("stock", one.stock, "stock torch", top + 9, scale, colours)
        lines += _bar(
            "warmcc", one.warmcc, f"warmcc, {times} faster", top + 13 + BAR, scale, colours
        )
    lines.append(
        f'<text x="{LEFT}" y="{height - 8}" font-size="13" opacity="0.75">'
        "seconds per build, daemon warm; in the last pair, daemon just started</text>"
    )
    return "\n".join([*lines, "</svg>", ""])


def _bar(
    side: str, value: float, name: str, y: int, scale: float, colours: dict[str, str]
) -> Iterator[str]:
    """A bar with its time behind it, and its name: behind the time, or on a bar that is long."""
    width = max(2.0, value * scale)
    yield (
        f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3" '
        f'fill="{colours[side]}"/>'
    )
    is_long = width >= WIDTH / 3
    behind = "" if is_long else f'<tspan font-size="14" dx="8" opacity="0.75">{name}</tspan>'
    yield f'<text x="{LEFT + width + 8:.1f}" y="{y + 16}">{seconds(value)}{behind}</text>'
    if is_long:
        ink = colours[f"on {side}"]
        yield f'<text x="{LEFT + 8}" y="{y + 15}" font-size="14" fill="{ink}">{name}</text>'


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 3:
        print("usage: python -m benchmarks.headline RESULTS.json ROAD.json FOLDER", file=sys.stderr)
        return 2
    results, road, folder = map(Path, arguments)
    try:
        rows = chosen(results, road)
        for ground, colours in COLOURS.items():
            path = folder / f"{NAME}-{ground}.svg"
            path.write_text(drawn(rows, colours), encoding="utf-8")
            print(path)
    except (OSError, ValueError) as error:
        print(f"benchmarks.headline: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
