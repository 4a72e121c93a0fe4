"""``warmcc bench``: measurements on the user's machine.

Each subject is a module of this folder with ``add(parser)`` and ``run(arguments)``.
"""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType
from typing import NamedTuple


class _Subject(NamedTuple):
    module: str
    text: str


SUBJECTS = {
    "call": _Subject("bench_call", "what one call costs, and the layers below it"),
    "compile": _Subject("bench_compile", "what a first torch.compile consists of"),
}


def add_bench(parser: argparse.ArgumentParser) -> None:
    subjects = parser.add_subparsers(dest="subject", metavar="SUBJECT", required=True)
    helps = []
    for name, subject in SUBJECTS.items():
        made = subjects.add_parser(
            name, help=subject.text, description=subject.text[0].upper() + subject.text[1:] + "."
        )
        made.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS,
            help="print data as JSON on standard output",
        )  # fmt: skip
        _module(name).add(made)
        helps.append(made.format_help())
    parser.epilog = "\n".join([*helps, parser.epilog or ""])


def cmd_bench(arguments: argparse.Namespace) -> int:
    return int(_module(arguments.subject).run(arguments))


def _module(subject: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{SUBJECTS[subject].module}")
