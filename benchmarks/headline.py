"""``python -m benchmarks.headline RESULTS.json FOLDER``: the README's first picture, from figures
that were measured.

A few pairs of bars on a linear scale, in large letters and one narrow column, for a phone as well;
once for a light ground and once for a dark one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from benchmarks.harness import seconds
from benchmarks.harness.results import Result

ROWS = {
    "cold_cpp": "C++, never built before",
    "cuda_toy": "CUDA, never built before",
    "cuda_extension_header": "CUDA with torch/extension.h",
    "edit_body": "C++, one line edited",
}
NAME = "headline"
WIDTH, LEFT, BAR, ROW = 520, 14, 20, 92
COLOURS = {
    "light": {"ink": "#1f2328", "stock": "#8c959f", "warmcc": "#d1431b"},
    "dark": {"ink": "#e6edf3", "stock": "#6e7681", "warmcc": "#ff7b54"},
}


def chosen(path: Path) -> list[Result]:
    """The results of ``ROWS``, in their order. Raises OSError, ValueError where one was not
    measured.
    """
    found = {
        one["scenario"]: one for one in json.loads(path.read_text(encoding="utf-8"))["results"]
    }
    if missing := [name for name in ROWS if name not in found]:
        raise ValueError(
            f"{path} has no result of {', '.join(missing)}: measure it first (python -m "
            f"benchmarks NAME)"
        )
    return [Result.of_plain(found[name]) for name in ROWS]


def drawn(results: Sequence[Result], colours: dict[str, str]) -> str:
    """The picture as SVG."""
    longest = max(one.outcome.headline.stock.median for one in results)
    scale = (WIDTH - 2 * LEFT - 90) / longest
    height = ROW * len(results) + 26
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="17" fill="{colours["ink"]}">',
        "<title>Seconds per build, stock torch beside warmcc</title>",
    ]
    for place, one in enumerate(results):
        pair, top = one.outcome.headline, ROW * place + 24
        lines.append(
            f'<text x="{LEFT}" y="{top}" font-weight="600">{escape(ROWS[one.scenario])}</text>'
        )
        for row, side in enumerate(("stock", "warmcc")):
            value = (pair.stock if side == "stock" else pair.warmcc).median
            y, width = top + 9 + row * (BAR + 4), max(2.0, value * scale)
            name = "stock torch" if side == "stock" else f"warmcc, {pair.ratio:.0f}× faster"
            lines += [
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3" '
                f'fill="{colours[side]}"/>',
                f'<text x="{LEFT + width + 8:.1f}" y="{y + 16}">{seconds(value)}'
                f'<tspan font-size="14" dx="8" '
                f'opacity="0.75">{name if width < WIDTH / 2 else ""}</tspan></text>',
            ]
    lines.append(
        f'<text x="{LEFT}" y="{height - 8}" font-size="13" opacity="0.75">'
        "seconds per build, medians; the longer bar is stock torch</text>"
    )
    return "\n".join([*lines, "</svg>", ""])


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m benchmarks.headline RESULTS.json FOLDER", file=sys.stderr)
        return 2
    source, folder = map(Path, arguments)
    try:
        results = chosen(source)
        for ground, colours in COLOURS.items():
            path = folder / f"{NAME}-{ground}.svg"
            path.write_text(drawn(results, colours), encoding="utf-8")
            print(path)
    except (OSError, ValueError) as error:
        print(f"benchmarks.headline: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
