"""``warmcc analyze``: what one build costs with stock torch, and why."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from warmcc.client.cli import history, recipes
from warmcc.client.cli.display.output import as_json, talk
from warmcc.errors import DaemonError, RequestError

if TYPE_CHECKING:
    from warmcc.client.analyze.report import Analysis
    from warmcc.request import Request


def add_analyze(parser: argparse.ArgumentParser) -> None:
    recipes.add_arguments(
        parser, "files of one extension, or one in the store: its name, or the beginning of its key"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with pictures to FILE")
    parser.add_argument(
        "--chrome-trace", metavar="FILE", help="write a trace for chrome://tracing to FILE"
    )


def cmd_analyze(arguments: argparse.Namespace) -> int:
    from warmcc.client.analyze.analyze import analyze

    try:
        found = analyze(_request(arguments), _say if sys.stderr.isatty() else _silent)
        _ours(found)
        _write(arguments, found)
    except (RequestError, OSError, UnicodeDecodeError, ValueError) as error:
        talk(f"warmcc: {error}")
        return 1 if "Error building extension" in str(error) else 2
    if arguments.json:
        from warmcc.client.analyze.pictures import as_json as plain

        as_json(plain(found))
    else:
        from warmcc.client.cli.analysis.shown import show

        show(found)
    return 0


def _say(text: str) -> None:
    print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)


def _silent(_text: str) -> None:
    pass


def _request(arguments: argparse.Namespace) -> Request:
    """Raises RequestError, DaemonError, OSError."""
    first = arguments.sources[0]
    is_file = os.path.exists(first) or "/" in first or first.endswith((".cpp", ".cu", ".cc"))
    if is_file or len(arguments.sources) > 1:
        return recipes.recipe(arguments).request()
    from warmcc.client.connection.described import described

    found, why_none = described(first)
    named = [one for one in found if one.request.module_name == first] or found
    if not named:
        raise RequestError(f"{first!r} is neither a file nor an extension in the store: {why_none}")
    return named[0].request


def _ours(found: Analysis) -> None:
    """Put the steps of warmcc's last build of that name beside stock's, where there is one."""
    try:
        answered = next((one for one in reversed(history.find(found.name)) if one.spans), None)
    except (RequestError, DaemonError):
        return
    if answered is not None:
        found.ours, found.ours_seconds = answered.spans, answered.seconds


def _write(arguments: argparse.Namespace, found: Analysis) -> None:
    """Raises OSError."""
    from warmcc.client.analyze import pictures

    if arguments.html is not None:
        _put(arguments.html, pictures.page(found))
    if arguments.chrome_trace is not None:
        _put(arguments.chrome_trace, json.dumps(pictures.chrome(found)))


def _put(path: str, text: str) -> None:
    """In one step. Raises OSError."""
    from warmcc.client.loading.loader import replacing

    with replacing(path, 0o666) as draft, open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    talk(f"wrote {path}")
