"""``warmcc build``: one build from the command line or an editor, with diagnostics for it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from warmcc.client.cli import recipes
from warmcc.client.cli.display.output import as_json, talk
from warmcc.errors import CompileError, RequestError

if TYPE_CHECKING:
    from warmcc.client.live.recipe import Recipe
    from warmcc.protocol import Built


def add_build(parser: argparse.ArgumentParser) -> None:
    recipes.add_arguments(parser)
    parser.add_argument(
        "--diagnostics", choices=["gcc", "json", "sarif"],
        help="print only the compiler's diagnostics, in this form, on standard output",
    )  # fmt: skip
    parser.add_argument(
        "--stdin", action="store_true", help="read unsaved text from standard input"
    )
    parser.add_argument(
        "--as",
        dest="stands_for",
        metavar="FILE",
        help="with --stdin: the file that this text belongs to",
    )
    parser.add_argument(
        "--compile-commands", nargs="?", const="compile_commands.json", metavar="FILE",
        help="write a compilation database for clangd (default: compile_commands.json)",
    )  # fmt: skip


def cmd_build(arguments: argparse.Namespace) -> int:
    from warmcc.client.live.build import build
    from warmcc.client.live.report.formats import FORMATS
    from warmcc.client.live.report.readable import readable

    show = FORMATS[arguments.diagnostics] if arguments.diagnostics else None
    try:
        chosen = _unsaved(recipes.recipe(arguments), arguments)
        built = build(chosen)
    except CompileError as error:
        if show is not None:
            print(show(error.diagnostics))
        talk(readable(error))
        return 1
    except (RequestError, OSError, UnicodeDecodeError, ValueError) as error:
        talk(f"warmcc: {readable(error)}")
        return 2
    if arguments.compile_commands and not _write_commands(
        chosen, built, arguments.compile_commands
    ):
        return 2
    if show is not None:
        print(show(()))
    elif arguments.json:
        as_json(
            {
                "path": built.path,
                "outcome": built.outcome,
                "seconds": built.seconds,
                "steps": built.steps,
            }
        )
    else:
        print(built.path)
        talk(f"{built.outcome}, {built.seconds:.2f} s; {built.way}")
    return 0


def _unsaved(recipe: Recipe, arguments: argparse.Namespace) -> Recipe:
    if arguments.stdin != (arguments.stands_for is not None):
        raise RequestError("--stdin and --as FILE go together")
    return (
        recipe.with_text(os.path.abspath(arguments.stands_for), sys.stdin.read())
        if arguments.stdin
        else recipe
    )


def _write_commands(recipe: Recipe, built: Built, path: str) -> bool:
    from warmcc.client.live.compile_commands import write

    try:
        write(path, recipe, built)
    except (OSError, ValueError) as error:
        talk(f"warmcc: {path} was not written: {error}")
        return False
    talk(f"wrote {path}")
    return True
