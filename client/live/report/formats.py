"""Diagnostics in the forms that editors and other tools read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import msgspec

from warmcc.protocol import Diagnostic
from warmcc.version import __version__

_LEVELS = {"fatal error": "error", "error": "error", "warning": "warning", "note": "note"}


def as_data(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Plain values: file, line, column, severity, message."""
    return [msgspec.to_builtins(one) for one in diagnostics]


def as_gcc(diagnostics: Iterable[Diagnostic]) -> str:
    """One line each, as GCC writes them.

    >>> as_gcc([Diagnostic("k.cu", 3, 0, "error", "no")])
    'k.cu:3: error: no'
    """
    return "\n".join(f"{place(one)}{one.severity}: {one.message}" for one in diagnostics)


def place(one: Diagnostic) -> str:
    """``file:line:column: ``, as far as it is known."""
    parts = [one.file, str(one.line or ""), str(one.column or "")]
    return "".join(f"{part}:" for part in parts if part) + (" " if one.file else "")


def as_json(diagnostics: Iterable[Diagnostic]) -> str:
    return json.dumps(as_data(diagnostics), indent=1)


def as_sarif(diagnostics: Iterable[Diagnostic]) -> str:
    """SARIF 2.1.0."""
    results = []
    for one in diagnostics:
        result: dict[str, Any] = {"level": _LEVELS[one.severity], "message": {"text": one.message}}
        if one.file:
            place: dict[str, Any] = {"artifactLocation": {"uri": _uri(one.file)}}
            if one.line:
                place["region"] = {"startLine": one.line} | (
                    {"startColumn": one.column} if one.column else {}
                )
            result["locations"] = [{"physicalLocation": place}]
        results.append(result)
    driver = {"name": "warmcc", "version": __version__}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    log = {
        "$schema": schema,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1)


def _uri(path: str) -> str:
    from urllib.parse import quote

    return f"file://{quote(path)}" if os.path.isabs(path) else quote(path)


FORMATS = {"gcc": as_gcc, "json": as_json, "sarif": as_sarif}
