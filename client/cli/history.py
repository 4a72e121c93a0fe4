"""``warmcc stats``, ``warmcc logs`` and ``warmcc why``: read the logs; no daemon is needed."""

from __future__ import annotations

import argparse
import datetime
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from warmcc import paths, record
from warmcc.client.cli.display.output import as_json, duration, table
from warmcc.errors import RequestError
from warmcc.record import Answered, Line

_LEVELS = ("debug", "info", "warning", "error", "critical")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def lines() -> Iterator[Line]:
    """All lines there are, oldest first."""
    return record.read(paths.state_dir() / paths.STRUCTURED_LOG)


def answers() -> list[tuple[float, Answered]]:
    """Every answered request, oldest first, with its time."""
    return [(line.time, line.answered) for line in lines() if line.answered is not None]


def find(wanted: str) -> list[Answered]:
    """The requests of a name, or of a key that begins so, oldest first.
    Raises RequestError when there is none."""
    found = [
        one
        for _, one in answers()
        if one.name == wanted or (len(wanted) >= 6 and one.key.startswith(wanted))
    ]
    if not found:
        names = ", ".join(sorted({one.name for _, one in answers()})[:10])
        known = f"; known: {names}" if names else ""
        raise RequestError(f"no logged request matches {wanted!r}{known}")
    return found


# ---------------------------------------------------------------------- stats


def add_stats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="TIME", default="24h", help="how far back: 90m, 24h, 7d (default: 24h)"
    )


def cmd_stats(arguments: argparse.Namespace) -> int:
    since = time.time() - _seconds(arguments.since)
    found = [(when, one) for when, one in answers() if when >= since]
    periods: dict[str, list[Answered]] = {}
    form = "%Y-%m-%d" if _seconds(arguments.since) > 3 * 86400 else "%Y-%m-%d %H:00"
    for when, one in found:
        periods.setdefault(datetime.datetime.fromtimestamp(when).strftime(form), []).append(one)
    figures = {period: _figures(some) for period, some in periods.items()}
    reasons = Counter(one.reason for _, one in found if one.outcome == "declined")
    if arguments.json:
        as_json({"periods": figures, "declined": dict(reasons)})
        return 0
    if not found:
        print(f"no requests in the last {arguments.since}")
        return 0
    names = ("hit", "miss", "failed", "declined", "cancelled", "busy")
    rows = [("SINCE", "REQUESTS", *(name.upper() for name in names), "MEDIAN MISS", "SLOWEST")]
    for period, some in figures.items():
        shown = (str(some["outcomes"].get(name, 0)) for name in names)
        rows.append(
            (
                period, str(some["requests"]), *shown, duration(some["median"]),
                duration(some["slowest"]),
            )
        )  # fmt: skip
    table(rows, right=tuple(range(1, len(rows[0]))))
    for reason, count in reasons.most_common():
        print(f"{count:>5} left to stock: {reason}")
    return 0


def _figures(some: list[Answered]) -> dict[str, Any]:
    misses = [one.seconds for one in some if one.outcome == "miss"]
    return {
        "requests": sum(one.clients for one in some),
        "outcomes": dict(Counter(one.outcome for one in some)),
        "median": statistics.median(misses) if misses else 0.0,
        "slowest": max(misses, default=0.0),
    }


def _seconds(text: str) -> float:
    if (match := re.fullmatch(r"(\d+)([smhd])", text)) is None:
        raise RequestError(f"invalid time {text!r}; use for example 90m, 24h or 7d")
    return int(match[1]) * _UNITS[match[2]]


# ---------------------------------------------------------------------- logs


def add_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")
    parser.add_argument(
        "-n", "--lines", type=int, default=40, metavar="N", help="the last N lines (default: 40)"
    )
    levels = ["debug", "info", "warning", "error"]
    parser.add_argument(
        "--level", choices=levels, default="debug", help="this level and above (default: all)"
    )


def cmd_logs(arguments: argparse.Namespace) -> int:
    wanted = _LEVELS[_LEVELS.index(arguments.level) :]
    kept = [line for line in lines() if line.level in wanted]
    for line in kept[-arguments.lines :] if arguments.lines else []:
        _print(line, as_data=arguments.json)
    if arguments.follow:
        for line in _new_ones():
            if line.level in wanted:
                _print(line, as_data=arguments.json)
    elif not kept:
        print(
            f"no daemon has run yet: there is no log in {paths.state_dir() / paths.STRUCTURED_LOG}",
            file=sys.stderr,
        )
    return 0


def _print(line: Line, *, as_data: bool) -> None:
    if as_data:
        print(record.encode(line).decode(), flush=True)
        return
    when = datetime.datetime.fromtimestamp(line.time).strftime("%m-%d %H:%M:%S")
    print(
        f"{when} {line.level:<7} {line.logger.removeprefix('warmcc.')}: {line.message}", flush=True
    )


def _new_ones() -> Iterator[Line]:
    """Lines as they are written, also after the file was rotated."""
    file = paths.state_dir() / paths.STRUCTURED_LOG
    place, inode, partial = (
        (file.stat().st_size, file.stat().st_ino, b"") if file.exists() else (0, 0, b"")
    )
    while True:
        time.sleep(0.2)
        try:
            with open(file, "rb") as source:
                if (now := os.fstat(source.fileno()).st_ino) != inode:
                    place, inode, partial = 0, now, b""
                source.seek(place)
                *whole, partial = (partial + source.read()).split(b"\n")
                place = source.tell()
        except FileNotFoundError:
            continue
        for text in whole:
            if (line := record.decode(text)) is not None:
                yield line


# ---------------------------------------------------------------------- why


def add_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="NAME|KEY", help="the extension's name, or the beginning of a request key"
    )


def cmd_why(arguments: argparse.Namespace) -> int:
    """Compare the last build of a name or key with the most similar one before it."""
    found = find(arguments.what)
    last = next((one for one in reversed(found) if one.inputs), None)
    if last is None:
        told = f"{found[-1].name}: {found[-1].outcome}" + (
            f", {found[-1].reason}" if found[-1].reason else ""
        )
        as_json({"name": found[-1].name, "why": told}) if arguments.json else print(told)
        return 0
    every = [one for _, one in answers() if one.inputs]
    before = every[: every.index(last)]
    reasons, nearest = _why(last, before)
    if arguments.json:
        as_json({"name": last.name, "key": last.key, "outcome": last.outcome, "why": reasons})
        return 0
    print(f"{last.name} ({last.key[:12]}) was built: {last.outcome} in {duration(last.seconds)}")
    if nearest is not None and nearest.key != last.key:
        print(f"the nearest request before it, {nearest.name} ({nearest.key[:12]}), differs in")
    for reason in reasons:
        print(f"  {reason}")
    return 0


def _why(last: Answered, before: list[Answered]) -> tuple[list[str], Answered | None]:
    """What makes the last one a miss: reasons, and the request that it is compared with."""
    if last.stale:
        return [f"a result existed under its key, but {last.stale}"], None
    if any(one.key == last.key and one.outcome == "miss" for one in before):
        return ["built before under the same key, and evicted, withdrawn or removed since"], None
    if not before:
        return ["nothing was built before it"], None
    nearest = min(
        reversed(before), key=lambda one: (len(_differing(last, one)), one.name != last.name)
    )
    reasons = []
    for part in _differing(last, nearest):
        old, new = nearest.inputs.get(part), last.inputs.get(part)
        if old is None or new is None:
            reasons.append(
                f"{part}: {'new' if old is None else 'gone'}, {new if old is None else old}"
            )
        elif old.startswith("sha256 ") or new.startswith("sha256 "):
            reasons.append(f"{part}: different text")
        else:
            reasons.append(f"{part}: was {old}, is {new}")
    if not reasons and nearest.key != last.key:
        reasons.append("the value of a macro (-D): the log keeps only names")
    if not reasons:
        reasons.append(f"built before, and {nearest.outcome} then")
    return reasons, nearest


def _differing(one: Answered, other: Answered) -> list[str]:
    every = dict.fromkeys((*one.inputs, *other.inputs))
    return [part for part in every if one.inputs.get(part) != other.inputs.get(part)]
