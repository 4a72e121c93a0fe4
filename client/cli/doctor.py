"""``warmcc doctor``: check this machine, and report each problem with its remedy.
``--fix`` applies the remedies that are safe.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from warmcc.client.cli.checks import cuda, daemon, folders, installed, limits, problem_report
from warmcc.client.cli.checks.finding import Finding
from warmcc.client.cli.display.output import as_json, talk

_MARKS = {"ok": "✓", "note": "·", "bad": "✗"}
_CHECKS = (
    installed.python, installed.torch, installed.compiler, installed.ninja_program,
    installed.tools, cuda.toolkit, folders.settings, folders.folders, limits.disk, limits.limits,
    folders.locks, daemon.daemon,
)  # fmt: skip


def add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fix", action="store_true", help="repair folder modes and remove stale locks"
    )
    parser.add_argument(
        "--report", nargs="?", const=problem_report.NAME, metavar="FILE",
        help=f"write an archive for a problem report (default: {problem_report.NAME})",
    )  # fmt: skip


def cmd_doctor(arguments: argparse.Namespace) -> int:
    found = []
    for check in _CHECKS:
        for one in check():
            if arguments.fix and one.fix is not None:
                one = _fixed(one)
            found.append(one)
            if not arguments.json:
                print(f"{_MARKS[one.state]} {one.title:<11} {one.text}")
                if one.advice:
                    print(f"  {'':<11} → {one.advice}")
    bad = sum(one.state == "bad" for one in found)
    if arguments.report is not None:
        place = Path(arguments.report)
        names = problem_report.write(
            place, [f"{o.state}: {o.title}: {o.text} {o.advice}".rstrip() for o in found]
        )
        talk(f"wrote {place}: {', '.join(names)}. Review it before you send it.")
    if arguments.json:
        as_json(
            [
                {"title": o.title, "state": o.state, "text": o.text, "advice": o.advice}
                for o in found
            ]
        )
    elif bad:
        fixable = any(one.fix and one.state == "bad" for one in found)
        hint = "; `warmcc doctor --fix` can repair some" if fixable else ""
        print(f"\n{bad} problem{'s' * (bad > 1)} found{hint}")
    return 1 if bad else 0


def _fixed(one: Finding) -> Finding:
    assert one.fix is not None
    try:
        return Finding(one.title, "ok", one.fix())
    except OSError as error:
        return Finding(one.title, "bad", f"{one.text}; could not be repaired: {error}", one.advice)
