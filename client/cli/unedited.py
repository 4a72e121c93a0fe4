"""warmcc for code that you do not edit: ``warmcc exec``, ``enable`` and ``disable``."""

from __future__ import annotations

import argparse
import os

from warmcc.client.cli.display.output import talk


def add_exec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command, and its words"
    )


def cmd_exec(arguments: argparse.Namespace) -> int:
    from warmcc.client.install import children

    words = arguments.words[arguments.words[:1] == ["--"] :]
    if not words:
        talk("warmcc: no command given; for example: warmcc exec -- python train.py")
        return 2
    try:
        os.execvpe(words[0], words, children.environment())
    except OSError as error:
        talk(f"warmcc: {words[0]} cannot be run: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _add_venv(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--venv", metavar="FOLDER", help="a virtual environment (default: the one that runs this)"
    )


add_enable = add_disable = _add_venv


def cmd_enable(arguments: argparse.Namespace) -> int:
    from warmcc.client.install import venv

    written = venv.enable(arguments.venv)
    talk(f"each Python of this environment installs warmcc at its start: {written}")
    return 0


def cmd_disable(arguments: argparse.Namespace) -> int:
    from warmcc.client.install import venv

    removed = venv.disable(arguments.venv)
    talk("it was not enabled" if removed is None else f"removed {removed}")
    return 0
