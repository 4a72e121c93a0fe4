"""``python -m benchmarks.road``: measure cases off the road beside stock torch, and name every cell
that is slower.

The table goes to standard output, talk to standard error, all samples to a JSON file. Exit codes: 0
measured, 1 a result was wrong or a case failed (or, with --check, a cell takes more than 1.1 times
stock's time), 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import machine, say
from benchmarks.road.cases import CASES, SHORT
from benchmarks.road.ledger import Ledger, Unusable, put_aside
from benchmarks.road.runner import Plan, Run, estimate, spoken
from benchmarks.road.table import as_markdown, as_text
from benchmarks.road.verdict import LIMIT, cells, wrong
from benchmarks.road.worlds import STARTED, STATES

RESULTS = Path(__file__).parents[1] / "results"


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.list:
        for case in CASES.values():
            print(f"{case.name:26} {case.about}")
        return 0
    if arguments.source is not None:
        return _show(_read(parser, arguments.source), arguments)
    plan = _plan(parser, arguments)
    path = (
        arguments.json
        or RESULTS / f"road-{'short-' * arguments.short}{machine.machine_class()}.json"
    )
    if not path.parent.is_dir():
        parser.error(f"--json: there is no folder {path.parent}; create it, or name another file")
    ledger = _begun(parser, path, arguments.resume)
    _leave_out_cuda(plan, ledger)
    say(
        f"{len(plan.sequences())} sequences of calls: {spoken(estimate(plan, ledger))}. "
        f"Results go to {path}."
    )
    if machine.is_busy():
        say("this machine is busy with other work; the figures will not repeat well")
    try:
        Run(plan, ledger, lambda: ledger.save(path)).run()
    except KeyboardInterrupt:
        say(f"interrupted; --resume goes on with {path}")
        _show(ledger, arguments)
        return 130
    return _show(ledger, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.road",
        description="Measure what warmcc was not tuned for against stock torch, and name every "
        "cell that is slower.",
    )
    parser.add_argument(
        "--cases", type=_names, metavar="A,B", help="which cases (default: all); see --list"
    )
    parser.add_argument(
        "--states",
        type=_names,
        metavar="A,B",
        help=f"of the daemon: {', '.join(STATES)} (default: all)",
    )
    parser.add_argument(
        "--cores", type=_names, default=["all"], metavar="1,2,all", help="numbers of processors"
    )
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="how often (default: once)"
    )
    parser.add_argument(
        "--short", action="store_true", help=f"a few minutes: {' and '.join(SHORT)}, just started"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the results that are there"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where the samples go (default: benchmarks/results)",
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="show results instead of measuring"
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print the table as Markdown, for docs/evidence/performance.md",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"exit with 1 when a cell is over {LIMIT:g} times stock's",
    )
    parser.add_argument("--list", action="store_true", help="name the cases, and end")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _plan(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Plan:
    cases = arguments.cases or (list(SHORT) if arguments.short else list(CASES))
    states = arguments.states or ([STARTED] if arguments.short else list(STATES))
    for option, given, known in (
        ("--cases", cases, list(CASES)),
        ("--states", states, list(STATES)),
    ):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"{option}: there is no {unknown[0]!r}; choose from: {', '.join(known)}")
    if arguments.repeat < 1:
        parser.error(f"--repeat {arguments.repeat}: must be 1 or more")
    chosen = [case for name, case in CASES.items() if name in cases]
    return Plan(
        chosen, [state for state in STATES if state in states], _cores(parser, arguments.cores),
        arguments.repeat, prewarm_cuda=not arguments.short,
    )  # fmt: skip


def _cores(parser: argparse.ArgumentParser, given: list[str]) -> list[int]:
    here = machine.cores()
    found = set()
    for text in given:
        if text != "all" and not (text.isdecimal() and 1 <= int(text) <= here):
            parser.error(
                f"--cores: {text!r} must be 'all' or a number from 1 to {here}, which "
                f"this process may use"
            )
        found.add(here if text == "all" else int(text))
    return sorted(found)


def _read(parser: argparse.ArgumentParser, path: Path) -> Ledger:
    try:
        return Ledger.read(path)
    except Unusable as error:
        parser.error(str(error))


def _begun(parser: argparse.ArgumentParser, path: Path, resume: bool) -> Ledger:
    """New results, or with --resume those that are there."""
    facts = machine.facts()
    if resume and path.exists():
        try:
            return Ledger.read(path).resumed(facts)
        except Unusable as error:
            parser.error(str(error))
    if kept := put_aside(path):
        say(f"the results of an earlier run are now in {kept}")
    return Ledger(facts)


def _leave_out_cuda(plan: Plan, ledger: Ledger) -> None:
    """Say which cases cannot be built here, and why."""
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    why = (
        "torch is built without CUDA"
        if torch.version.cuda is None
        else "nvcc was not found (set CUDA_HOME)"
    )
    if torch.version.cuda is None or CUDA_HOME is None:
        ledger.left_out.update({case.name: why for case in plan.cases if case.is_cuda})


def _show(ledger: Ledger, arguments: argparse.Namespace) -> int:
    print(as_markdown(ledger) if arguments.markdown else as_text(ledger))
    over = arguments.check and any(cell.is_over for cell in cells(ledger.samples))
    return 1 if ledger.failures or wrong(ledger.samples) or over else 0


def _on_sigterm(*_: object) -> None:
    raise KeyboardInterrupt  # so that daemons and folders are cleaned up


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _on_sigterm)
    sys.exit(main())
