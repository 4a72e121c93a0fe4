"""``warmcc bench call``: what one call costs, and what it is made of."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import Any

from warmcc.client.cli.display.output import as_json, bold, table, talk
from warmcc.errors import DaemonError, RequestError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="MODULE.FUNCTION",
        help="a function of a module that can be imported here, or of an extension in the store"
        " (`warmcc cache ls`)",
    )  # fmt: skip
    parser.add_argument(
        "words", nargs="*", metavar="ARG",
        help='its arguments: "rand(1024, 1024, device=cuda)", 3, [1,2], alpha=0.5',
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=int, default=100, metavar="N", help="samples of each row (default: 100)"
    )
    parser.add_argument(
        "--no-probes", action="store_true",
        help="without the rows of bindings, for which empty functions are built",
    )  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="write a page with the table and a picture")
    parser.add_argument("--svg", metavar="FILE", help="write the picture")
    parser.add_argument(
        "--nsys", metavar="FILE",
        help="measure under Nsight Systems, and write its report; each row is an NVTX range",
    )  # fmt: skip
    parser.add_argument(
        "--perf", metavar="FILE", help="also write a flame picture of the call by perf, as a page"
    )


def run(arguments: argparse.Namespace) -> int:
    from warmcc.client.measuring.calls import expressions, profilers
    from warmcc.client.measuring.written import check

    try:
        if arguments.samples < 2:
            raise RequestError("--samples takes a number from 2 on")
        expressions.read_words(arguments.words)
        check(arguments.html, arguments.svg, arguments.perf, arguments.nsys)
        given = {
            "target": arguments.target, "extension": _extension(arguments.target),
            "words": arguments.words, "samples": arguments.samples, "seconds": 0.0,
            "probes": not arguments.no_probes,
        }  # fmt: skip
        if arguments.nsys:
            found = profilers.nsys(arguments.nsys, given)
        else:
            found = profilers.run(profilers.CHILD, given)
        _write(arguments, found, given)
    except RequestError as error:
        talk(f"warmcc: {error}")
        return 2
    for row in found["rows"]:
        row.update(_percentiles(row))
    if arguments.json:
        as_json(found)
    else:
        _show(arguments, found)
    return 0


def _extension(target: str) -> str:
    """The artifact of an extension in the store; '' for a module that is found as Python finds it.
    Raises RequestError."""
    name, found, _ = target.partition(".")
    if not found or not all(part.isidentifier() for part in target.split(".")):
        raise RequestError(f"{target!r} is not written as MODULE.FUNCTION")
    sys.path.insert(0, os.getcwd())
    try:
        if importlib.util.find_spec(name) is not None:
            return ""
    finally:
        sys.path.pop(0)
    from warmcc.client.connection.described import described

    try:
        artifacts, why_none = described(name)
    except DaemonError as error:
        reason = f"there is no module {name}, and the store was not read: {error}"
        raise RequestError(reason) from None
    named = [one for one in artifacts if one.request.module_name == name]
    if not named:
        raise RequestError(
            f"there is no module {name}, and no such extension in the store: {why_none}"
        )
    return named[0].built.path


def _percentiles(row: dict[str, Any]) -> dict[str, float]:
    from warmcc.client.measuring.calls.clock import percentiles

    return percentiles(row["samples"]) if row["samples"] else {}


def _table(found: dict[str, Any]) -> list[tuple[str, ...]]:
    from warmcc.client.measuring.calls.dots import shown

    rows: list[tuple[str, ...]] = [("ROW", "P5", "MEDIAN", "P95", "P99", "WHAT IS CALLED")]
    for row in found["rows"]:
        if times := _percentiles(row):
            cells = [shown(times[name]) for name in ("p5", "p50", "p95", "p99")]
        else:
            cells = ["", "", "", ""]
        rows.append((row["name"], *cells, row["failure"] or row["about"]))
    return rows


def _facts(found: dict[str, Any]) -> list[str]:
    samples = max(len(row["samples"]) for row in found["rows"])
    return [
        f"with {', '.join(found['arguments']) or 'no arguments'}; {found['device']}, torch"
        f" {found['torch']}; a {found['function']}",
        f"time per call: percentiles of {samples} samples, each the mean of some calls",
        *found["notes"],
    ]


def _picture(arguments: argparse.Namespace, found: dict[str, Any]) -> str:
    from warmcc.client.measuring.calls import dots

    measured = [(row["name"], _percentiles(row)) for row in found["rows"] if row["samples"]]
    return dots.svg(f"{_title(arguments)}: time per call", measured)


def _title(arguments: argparse.Namespace) -> str:
    return f"{arguments.target}({', '.join(arguments.words)})"


def _write(arguments: argparse.Namespace, found: dict[str, Any], given: dict[str, Any]) -> None:
    """The files that are asked for. Raises RequestError."""
    from warmcc.client.measuring import flame
    from warmcc.client.measuring.calls import profilers
    from warmcc.client.measuring.page import page
    from warmcc.client.measuring.written import write

    if arguments.svg:
        write(arguments.svg, _picture(arguments, found))
    if arguments.html:
        facts, rows = _facts(found), _table(found)
        write(arguments.html, page(_title(arguments), facts, _picture(arguments, found), [rows]))
    if arguments.perf:
        root = flame.folded(profilers.perf(given), "all")
        facts = [f"{root.value:.0f} samples of the call in {profilers.SECONDS:g} s by perf"]
        write(arguments.perf, page(_title(arguments), facts, flame.html(root), []))


def _show(arguments: argparse.Namespace, found: dict[str, Any]) -> None:
    print("\n".join([bold(_title(arguments)), *_facts(found), ""]))
    table(_table(found), right=(1, 2, 3, 4))
    if arguments.nsys:
        talk(f"wrote {arguments.nsys}.nsys-rep; open it with: nsys-ui {arguments.nsys}.nsys-rep")
