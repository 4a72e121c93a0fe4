"""``python -m leaderboard evaluate FOLDER``: evaluate ``FOLDER/USER/NAME.cpp`` and ``.cu`` here.

``compile FOLDER BUNDLES`` and ``run BUNDLES`` do the two parts on two machines. Each prints a line
of JSON for each submission (``submission.Report``). The exit code is 1 if the evaluator itself
failed for one of them, and 2 for a problem of the machine, which is on standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import warmcc

from .compile import Unsafe, check_daemon, compile_submission
from .confine import Limits
from .evaluator import bundle_name, evaluate_all, in_turn
from .run import Runner
from .submission import Report, Submission, in_folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m leaderboard", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    evaluate = commands.add_parser("evaluate", help="compile and run, both here")
    evaluate.add_argument("folder", type=Path)
    compiling = commands.add_parser(
        "compile", help="write a bundle and a report for each submission"
    )
    compiling.add_argument("folder", type=Path)
    compiling.add_argument("bundles", type=Path)
    running = commands.add_parser("run", help="run what compile wrote")
    running.add_argument("bundles", type=Path)
    for one in (evaluate, running):
        one.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "leaderboard")
        one.add_argument("--seconds", type=float, default=10.0, help="time limit of one submission")
        one.add_argument("--runners", type=int, default=1, help="submissions that run at a time")
    return parser


def _evaluate(options: argparse.Namespace, tell: Callable[[Report], None]) -> None:
    check_daemon()
    with Runner(options.work, Limits(seconds=options.seconds)) as runner:
        evaluate_all(
            in_folder(options.folder), runner, tell, work=options.work,
            runners=options.runners,
        )  # fmt: skip


def _compile(options: argparse.Namespace, tell: Callable[[Report], None]) -> None:
    check_daemon()
    options.bundles.mkdir(parents=True, exist_ok=True)

    def evaluate(one: Submission) -> Report:
        bundle = options.bundles / bundle_name(one)
        report = compile_submission(one, bundle)
        if report.status == "compiled":
            bundle.with_suffix(".json").write_text(json.dumps(dataclasses.asdict(one)))
        return report

    in_turn(in_folder(options.folder), evaluate, tell)


def _run(options: argparse.Namespace, tell: Callable[[Report], None]) -> None:
    places = sorted(options.bundles.glob("*.json"))
    submissions = [Submission(**json.loads(place.read_text())) for place in places]
    with Runner(options.work, Limits(seconds=options.seconds)) as runner:
        in_turn(
            submissions, lambda one: runner.run(one, options.bundles / bundle_name(one)), tell,
            threads=options.runners,
        )  # fmt: skip


def main() -> int:
    options = _parser().parse_args()
    failed = 0

    def tell(report: Report) -> None:
        nonlocal failed
        failed |= report.status == "failed"
        print(report.line(), flush=True)

    try:
        {"evaluate": _evaluate, "compile": _compile, "run": _run}[options.command](options, tell)
    except (Unsafe, warmcc.WarmccError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return failed


if __name__ == "__main__":
    sys.exit(main())
