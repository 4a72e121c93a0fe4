"""``warmcc run``, for the lists of commands: what is typed goes to ``client/run/launch.py`` unread,
since most of it is python's.
"""

from __future__ import annotations

import argparse

from warmcc import runs
from warmcc.client.run.launch import USAGE


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument(
        "--explain", action="store_true",
        help="say on standard error why python itself runs the program, if it does",
    )  # fmt: skip
    parser.add_argument(
        "--profile", choices=runs.PROFILES, default="torch",
        help="what is imported: torch, or also what torch.compile uses",
    )  # fmt: skip
    parser.add_argument(
        "--inductor", action="store_true",
        help="the profile inductor: as compile, and what torch.compile compiles goes to the daemon",
    )  # fmt: skip
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="ARG",
        help="python's arguments; with options of python, python itself runs the program",
    )  # fmt: skip
