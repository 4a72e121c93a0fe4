"""``python -m benchmarks``: run scenarios, print medians and ratios."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

from benchmarks import scenarios
from benchmarks.harness import Outcome, machine, say

NAMES = sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__))


def seconds(value: float) -> str:
    """A time in three digits, in the unit that fits."""
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def rows(results: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Header and rows of the table: scenario, warmcc, stock, ratio."""
    found = [("scenario", "warmcc", "stock torch", "ratio")]
    for result in results:
        ours, theirs = result["ratio_of"]
        medians = result["medians"]
        found.append((result["title"], seconds(medians[ours]), seconds(medians[theirs]), f"{result['ratio']:.3g}×"))
        found += [
            (f"  {name}", seconds(median), "", "") for name, median in medians.items() if name not in (ours, theirs)
        ]
    return found


def show(results: list[dict[str, Any]], *, markdown: bool) -> None:
    table = rows(results)
    if markdown:
        for number, row in enumerate(table):
            print("| " + " | ".join(row) + " |")
            if number == 0:
                print("|---|---|---|---|")
        return
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    for row in table:
        print(f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"which to run (default: all): {', '.join(NAMES)}")
    parser.add_argument("--repeat", type=int, help="samples of each (default: the scenario's own number)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there ('-': standard output)")
    parser.add_argument("--from", metavar="FILE", dest="source", help="take results from a file instead of measuring")
    parser.add_argument("--plot", metavar="FOLDER", help="draw benchmarks.png and benchmarks.svg there")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenario) - set(NAMES):
        parser.error(f"unknown scenario: {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    failed = False
    if arguments.source:
        report = json.loads(Path(arguments.source).read_text())
    else:
        report = {"machine": machine(), "results": []}
        for name in arguments.scenario or NAMES:
            module = importlib.import_module(f"benchmarks.scenarios.{name}")
            say(f"{name}: {module.TITLE}")
            try:
                outcome: Outcome = module.measure(arguments.repeat or module.REPEAT)
                report["results"].append(json.loads(json.dumps(outcome.plain())))
            except (RuntimeError, AssertionError) as error:
                failed = True
                say(f"{name} failed: {error}")
    if arguments.json == "-":
        print(json.dumps(report, indent=1))
    else:
        show(report["results"], markdown=arguments.markdown)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    if arguments.plot:
        from benchmarks.plot import draw

        draw(report, Path(arguments.plot))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
