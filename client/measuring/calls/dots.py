"""A picture of percentiles: for each row a dot at its median, and a line from p5 to p95, on a
logarithmic axis of time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_LEFT, _WIDTH, _ROW, _RIGHT = 190, 900, 24, 110
_TOP = 46


def svg(title: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """``rows`` have a name and percentiles in seconds (``p5``, ``p50``, ``p95``)."""
    low = math.floor(math.log10(min(row["p5"] for _, row in rows)))
    high = math.ceil(math.log10(max(row["p95"] for _, row in rows)))
    high = max(high, low + 1)

    def place(seconds: float) -> float:
        part = (math.log10(seconds) - low) / (high - low)
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    height = _TOP + len(rows) * _ROW + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
        f' height="{height}" font-family="monospace" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="4" y="16" font-size="13">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        x = place(10.0**power)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{height - 6}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{_TOP - 12}" text-anchor="middle">{shown(10.0**power)}</text>'
        )
    for number, (name, row) in enumerate(rows):
        y = _TOP + number * _ROW + _ROW // 2
        fill = "#d9480f" if name.startswith("call") else "#1864ab"
        median = place(row["p50"])
        end = place(row["p95"])
        parts.append(
            f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
            f'<line x1="{place(row["p5"]):.1f}" x2="{end:.1f}" y1="{y}" y2="{y}"'
            f' stroke="{fill}" stroke-width="3" stroke-opacity=".4"/>'
            f'<circle cx="{median:.1f}" cy="{y}" r="4.5" fill="{fill}"/>'
            f'<text x="{_WIDTH - 8}" y="{y + 4}" text-anchor="end">{shown(row["p50"])}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def shown(seconds: float) -> str:
    """Three digits, in the unit that fits.

    >>> [shown(one) for one in (1.234e-9, 5.67e-7, 1e-6, 0.0123, 2.5)]
    ['1.23 ns', '567 ns', '1 µs', '12.3 ms', '2.5 s']
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
