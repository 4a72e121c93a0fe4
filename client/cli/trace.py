"""``warmcc trace``: the steps of a build in time.
For Chrome's tracing page (or Perfetto), or as a picture.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
from html import escape
from pathlib import Path

from warmcc.client.cli.display.output import duration, talk
from warmcc.client.cli.history import add_why, find
from warmcc.errors import RequestError
from warmcc.record import Answered, Span

_COLOURS = {
    "wait": "#b0b0b0", "plan": "#8da0cb", "compile": "#66a61e", "link": "#e6ab02",
    "publish": "#a6761d",
}  # fmt: skip
_OTHER = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#1f78b4")
_WIDTH, _ROW, _LEFT, _TOP = 900, 26, 210, 44


def add_trace(parser: argparse.ArgumentParser) -> None:
    add_why(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write a trace for chrome://tracing to FILE"
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the timeline to FILE")
    parser.add_argument("--open", action="store_true", help="draw the timeline and show it")


def cmd_trace(arguments: argparse.Namespace) -> int:
    one = next((one for one in reversed(find(arguments.what)) if one.spans), None)
    if one is None:
        raise RequestError(
            f"{arguments.what!r} was found in the store and not built: there are no steps to show"
        )
    if arguments.open or arguments.svg:
        target = Path(
            arguments.svg or Path(tempfile.mkdtemp(prefix="warmcc-trace-")) / f"{one.name}.svg"
        )
        target.write_text(svg(one), encoding="utf-8")
        talk(f"wrote {target}")
        if arguments.open and not _shown(target):
            talk("could not start a viewer (xdg-open); open the file in a browser")
    if arguments.output or not (arguments.open or arguments.svg):
        text = json.dumps(chrome(one), indent=1)
        if arguments.output:
            Path(arguments.output).write_text(text, encoding="utf-8")
            talk(
                f"wrote {arguments.output}; load it at chrome://tracing or https://ui.perfetto.dev"
            )
        else:
            print(text)
    return 0


def _shown(target: Path) -> bool:
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return subprocess.run(["xdg-open", str(target)], capture_output=True).returncode == 0
    except OSError:
        return False


def rows(one: Answered) -> list[list[Span]]:
    """Spans in rows: those that run at the same time go below each other."""
    found: list[list[Span]] = []
    for span in sorted(one.spans, key=lambda span: (span.start, span.end)):
        row = next((row for row in found if row[-1].end <= span.start + 1e-4), None)
        if row is None:
            found.append(row := [])
        row.append(span)
    return found


def chrome(one: Answered) -> dict[str, object]:
    """The trace event format's complete events, in microseconds."""
    events = [
        {
            "name": span.name, "cat": span.step, "ph": "X", "ts": round(span.start * 1e6),
            "dur": round((span.end - span.start) * 1e6), "pid": 1, "tid": number + 1,
        }
        for number, row in enumerate(rows(one))
        for span in row
    ]  # fmt: skip
    naming = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"warmcc: {one.name}"}}
    about = {"key": one.key, "way": one.way, "outcome": one.outcome}
    return {"traceEvents": [naming, *events], "displayTimeUnit": "ms", "otherData": about}


def _round_step(seconds: float) -> float:
    """The next larger one of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= seconds)


def svg(one: Answered) -> str:
    """A timeline: a row for each step, in the order of their starts."""
    spans = sorted(one.spans, key=lambda span: (span.start, span.end))
    total = max(span.end for span in spans) or 1e-3
    scale = (_WIDTH - _LEFT - 70) / total
    others = iter(_OTHER * len(spans))
    colours = dict(_COLOURS)
    height = _TOP + _ROW * len(spans) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14" font-weight="bold">{escape(one.name)}: '
        f"{duration(one.seconds)}</text>",
        f'<text x="10" y="36" fill="#666">{escape(one.way)}</text>',
    ]
    base = _TOP + len(spans) * _ROW
    step = _round_step(total / 6)
    for tick in range(int(total / step) + 1):
        at = step * tick
        x, label = _LEFT + at * scale, duration(at) if tick else "0"
        parts += [
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{base}" stroke="#ddd"/>',
            f'<text x="{x:.1f}" y="{base + 18}" text-anchor="middle" fill="#666">{label}</text>',
        ]
    for number, span in enumerate(spans):
        colour = colours.get(span.step) or colours.setdefault(span.step, next(others))
        y, x = _TOP + number * _ROW, _LEFT + span.start * scale
        width = max(1.5, (span.end - span.start) * scale)
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 17}" text-anchor="end">{escape(span.name[:32])}</text>',
            f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 8}" rx="2" '
            f'fill="{colour}"/>',
            f'<text x="{x + width + 4:.1f}" y="{y + 17}" '
            f'fill="#444">{duration(span.end - span.start)}</text>',
        ]
    return "\n".join([*parts, "</svg>"])
