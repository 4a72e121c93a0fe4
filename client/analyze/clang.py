"""What clang writes of a compile with ``-ftime-trace``."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from warmcc.client.analyze.report import Template

OPTIONS = ("-ftime-trace", "-ftime-trace-granularity=100")
_PHASES = {
    "Total ExecuteCompiler": "TOTAL", "Total Frontend": "phase parsing",
    "Total Backend": "phase opt and generate",
    "Total PerformPendingInstantiations": "template instantiation",
}  # fmt: skip
_INSTANTIATES = ("InstantiateFunction", "InstantiateClass")


class Read(NamedTuple):
    """Seconds by phase and by file (without what a file includes), and templates, the dearest
    first."""

    phases: dict[str, float]
    files: dict[str, float]
    templates: list[Template]


def read(text: str) -> Read:
    """A trace. Raises ValueError.

    >>> event = {"ph": "X", "name": "Source", "ts": 0, "dur": 5e5, "args": {"detail": "/a.h"}}
    >>> inner = {**event, "ts": 1e5, "dur": 2e5, "args": {"detail": "/b.h"}}
    >>> read(json.dumps({"traceEvents": [event, inner]})).files
    {'/a.h': 0.3, '/b.h': 0.2}
    """
    events = json.loads(text)["traceEvents"]
    phases = {
        _PHASES[one["name"]]: one["dur"] / 1e6
        for one in events
        if one.get("ph") == "X" and one["name"] in _PHASES
    }
    sources = sorted(_spans(events, ("Source",)), key=lambda one: (one[0], -one[1]))
    files: dict[str, float] = {}
    open_ones: list[tuple[float, str]] = []
    for start, end, path in sources:
        while open_ones and open_ones[-1][0] <= start:
            open_ones.pop()
        path = os.path.normpath(path)
        files[path] = files.get(path, 0.0) + (end - start) / 1e6
        if open_ones:
            files[open_ones[-1][1]] -= (end - start) / 1e6
        open_ones.append((end, path))
    templates: dict[str, Template] = {}
    for start, end, name in _spans(events, _INSTANTIATES):
        known = templates.setdefault(name.partition("<")[0], Template(name[:300], 0, 0.0, ""))
        known.count += 1
        known.seconds += (end - start) / 1e6
    return Read(phases, files, sorted(templates.values(), key=lambda one: -one.seconds))


def _spans(events: list[dict[str, Any]], names: tuple[str, ...]) -> list[tuple[float, float, str]]:
    """Start, end and detail in microseconds."""
    return [
        (one["ts"], one["ts"] + one["dur"], str(one["args"]["detail"]))
        for one in events
        if one.get("ph") == "X" and one["name"] in names and "detail" in one.get("args", {})
    ]
