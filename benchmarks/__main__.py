"""``python -m benchmarks``: run scenarios against stock torch, and print medians and ratios.

Data goes to standard output, talk to standard error. Exit codes: 0 all scenarios gave figures, 1
one failed (or, with --check, a target was missed), 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.harness import machine, say, table
from benchmarks.harness.results import Failure, Report, Result
from benchmarks.suites import Scenario, discover


def run(chosen: Iterable[Scenario], repeat: int | None, report: Report) -> None:
    """Run scenarios and put what they find into ``report``. One that fails does not end the
    others.
    """
    for scenario in chosen:
        say(f"{scenario.name}: {scenario.title}")
        try:
            outcome = scenario.measure(scenario.repeat if repeat is None else repeat)
        except Exception as error:
            say(f"{scenario.name} FAILED: {error}")
            report.failures.append(Failure(scenario.name, f"{type(error).__name__}: {error}"))
        else:
            report.results.append(Result(scenario.name, scenario.title, outcome))


def main(argv: Sequence[str] | None = None, scenarios: Mapping[str, Scenario] | None = None) -> int:
    known = discover() if scenarios is None else scenarios
    parser = _parser(known)
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.scenario if name not in known]:
        parser.error(f"unknown scenario: {', '.join(unknown)}; known: {', '.join(known)}")
    if arguments.list:
        for scenario in known.values():
            print(f"{scenario.name}\n    {scenario.about}")
        return 0
    _check_outputs(parser, arguments)
    interrupted = False
    if arguments.source is not None:
        report = _read(parser, arguments.source)
        report.results[:] = [
            one
            for one in report.results
            if not arguments.scenario or one.scenario in arguments.scenario
        ]
    else:
        if machine.is_busy():
            say("this machine is busy with other work; the figures will not repeat well")
        report = Report(machine.facts())
        try:
            run([known[name] for name in arguments.scenario or known], arguments.repeat, report)
        except KeyboardInterrupt:
            interrupted = True
            say("interrupted; what follows is what was measured until then")
    _write(report, arguments)
    if interrupted:
        return 130
    missed = any(not target.met for result in report.results for target in result.outcome.targets)
    return 1 if report.failures or (arguments.check and missed) else 0


def _parser(known: Mapping[str, Scenario]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure warmcc against stock torch, in turns in one run.",
    )
    parser.add_argument(
        "scenario",
        nargs="*",
        metavar="SCENARIO",
        help=f"which to run (default: all): {', '.join(known)}",
    )
    parser.add_argument(
        "--list", action="store_true", help="say what each scenario measures, and end"
    )
    parser.add_argument(
        "--repeat",
        type=_positive,
        metavar="N",
        help="samples of each side (default: the scenario's own)",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="show the results in FILE instead of measuring",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write all samples to FILE, to <machine class>.json in a folder, or to - (stdout)",
    )
    parser.add_argument(
        "--plot",
        metavar="DIR",
        help="draw benchmarks.png and benchmarks.svg in DIR (needs matplotlib)",
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print the table as Markdown, for the README"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    return parser


def _check_outputs(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Say now, and not after ten minutes of measuring, that the results cannot be written."""
    if arguments.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib; run: pip install matplotlib")
    if arguments.json not in (None, "-") and not os.access(Path(arguments.json).parent, os.W_OK):
        parser.error(f"--json: {arguments.json} cannot be written: no such folder, or not yours")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _read(parser: argparse.ArgumentParser, source: str) -> Report:
    try:
        return Report.of_plain(json.loads(Path(source).read_text(encoding="utf-8")))
    except OSError as error:
        parser.error(f"{source}: cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError) as error:
        parser.error(f"{source}: these are no results of a run: {error}")


def _write(report: Report, arguments: argparse.Namespace) -> None:
    text = table.as_markdown(report) if arguments.markdown else table.as_text(report)
    if arguments.json == "-":
        print(json.dumps(report.plain(), indent=1))
        say(text)
    else:
        print(text)
        if arguments.json is not None:
            target = Path(arguments.json)
            if target.is_dir():
                target /= f"{report.machine['class']}.json"
            target.write_text(json.dumps(report.plain(), indent=1) + "\n", encoding="utf-8")
            say(f"wrote {target}")
    if arguments.plot is not None and report.results:
        from benchmarks.harness.plot import draw

        for path in draw(report, Path(arguments.plot)):
            say(f"wrote {path}")


def _on_sigterm(*_: object) -> None:
    raise KeyboardInterrupt  # so that daemons and folders are cleaned up


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _on_sigterm)
    sys.exit(main())
