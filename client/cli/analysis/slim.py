"""``warmcc slim``: sources with fewer of torch's headers, and the same code."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmcc.client.cli import recipes
from warmcc.client.cli.display.output import as_json, duration, table, talk
from warmcc.errors import RequestError

if TYPE_CHECKING:
    from warmcc.client.live.recipe import Recipe
    from warmcc.client.slim.parts import Slimmed
    from warmcc.client.slim.slim import Result

_ENDINGS = (".cpp", ".cc", ".cxx", ".cu")
PATCH = ".slim.patch"


def add_slim(parser: argparse.ArgumentParser) -> None:
    recipes.add_arguments(parser)
    parser.add_argument(
        "--aliases", action="store_true",
        help="let a line take the place of torch/types.h: namespace torch { using namespace at; }",
    )  # fmt: skip
    parser.add_argument(
        "--split", action="store_true",
        help="move PYBIND11_MODULE into a second file, FILE_binding.cpp, which is compiled "
        "beside the functions",
    )  # fmt: skip
    parser.add_argument(
        "--apply", action="store_true",
        help=f"write the files; FILE{PATCH} is left beside each, for `patch -R`",
    )  # fmt: skip
    parser.add_argument(
        "--no-measure", action="store_true", help="do not measure stock's build before and after"
    )


def cmd_slim(arguments: argparse.Namespace) -> int:
    results: list[Result] = []
    failed: dict[str, str] = {}
    try:
        chosen = _recipes(arguments)
    except (RequestError, OSError, UnicodeDecodeError, ValueError) as error:
        talk(f"warmcc: {error}")
        return 2
    say = _say if sys.stderr.isatty() else _silent
    for recipe in chosen:
        found = _slimmed(recipe, arguments, say)
        if isinstance(found, str):
            failed[", ".join(os.path.relpath(one) for one in recipe.sources)] = found
        else:
            results.append(found)
    if arguments.json:
        as_json({"extensions": [_as_data(one) for one in results], "failed": failed})
    else:
        _show(results, failed, applied=arguments.apply)
    return 1 if failed else 0


def _slimmed(
    recipe: Recipe, arguments: argparse.Namespace, say: Callable[[str], None]
) -> Result | str:
    """The result, which is written where that is wanted; or why there is none."""
    from warmcc.client.slim.slim import slim

    try:
        found = slim(
            recipe, aliases=arguments.aliases, measure=not arguments.no_measure,
            splits=arguments.split, say=say,
        )  # fmt: skip
        if arguments.apply:
            apply(found)
    except (RequestError, OSError, UnicodeDecodeError) as error:
        return str(error)
    return found


def _say(text: str) -> None:
    print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)


def _silent(_text: str) -> None:
    pass


def _recipes(arguments: argparse.Namespace) -> list[Recipe]:
    """One for all files with --functions, else one for each. Raises RequestError."""
    paths = [path for one in arguments.sources for path in _files(one)]
    if arguments.functions:
        arguments.sources = paths
        return [recipes.recipe(arguments)]
    found = []
    for path in paths:
        arguments.sources, arguments.name = [path], None
        found.append(recipes.recipe(arguments))
    return found


def _files(path: str) -> list[str]:
    """A file, or all sources in a folder that include something of torch's. Raises RequestError."""
    from warmcc.client.slim.text import includes

    if not os.path.isdir(path):
        if not os.path.isfile(path):
            raise RequestError(f"{path} is not a file or a folder")
        return [path]
    tops = ("torch/", "ATen/", "c10/")
    found = [
        str(one)
        for one in sorted(Path(path).rglob("*"))
        if one.suffix in _ENDINGS
        and any(
            line.header.startswith(tops)
            for line in includes(one.read_text(encoding="utf-8", errors="replace"))
        )
    ]
    if not found:
        raise RequestError(f"no source in {path} includes torch ({', '.join(_ENDINGS)})")
    return found


def apply(result: Result) -> None:
    """Write the files, each in one step and the source last, so that nothing is lost where that
    fails; a new file is like the source that it comes from. Raises RequestError, OSError."""
    ending, mode = "\n", 0o644
    new = [one for one in result.sources if one.is_new]
    made = "".join(one.diff() for one in new)
    writes: list[tuple[str, str, int]] = []
    for one in result.sources:
        if one.path is None or not one.changed or one.is_new:
            continue
        with open(one.path, encoding="utf-8", newline="") as file:
            raw = file.read()
        ending = "\r\n" if "\r\n" in raw else "\n"
        if raw != one.before.replace("\n", ending):
            raise RequestError(f"{one.name} was changed meanwhile, and is left as it is")
        mode = os.stat(one.path).st_mode & 0o777
        patch = f"{one.diff()}{made}".replace("\n", ending)
        after = one.after.replace("\n", ending)
        writes += [(one.path + PATCH, patch, mode), (os.path.realpath(one.path), after, mode)]
    created = [str(one.path) for one in new]
    if there := [path for path in created if os.path.lexists(path)]:
        raise RequestError(f"{os.path.relpath(there[0])} was made meanwhile, and is left as it is")
    first = [(str(one.path), one.after.replace("\n", ending), mode) for one in new]
    try:
        for path, text, bits in (*first, *writes):
            _put(path, text, bits)
    except OSError:
        for path in created:
            Path(path).unlink(missing_ok=True)
        raise


def _put(path: str, text: str, mode: int) -> None:
    """Raises OSError."""
    from warmcc.client.loading.loader import replacing

    with replacing(path, mode) as draft, open(draft, "w", encoding="utf-8", newline="") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask is
        file.write(text)


def _as_data(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "seconds": result.seconds,
        "gain": result.gain,
        "no_implicit_headers": result.needs_flag,
        "why_whole": result.why_whole,
        "sources": [
            {
                "path": one.path, "changed": one.changed, "new": one.is_new,
                "headers": list(one.headers), "why_not": one.why_not, "large": list(one.large),
                "diff": one.diff(),
            }
            for one in result.sources
        ],
    }  # fmt: skip


def _show(results: list[Result], failed: dict[str, str], *, applied: bool) -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    for result in results:
        for one in result.sources:
            if one.changed:
                print(one.diff(), end="")
        for line in _words(result, applied=applied):
            talk(line)
    for name, reason in failed.items():
        talk(f"{name}: {reason}")
    if len(results) > 1:
        _headers(results)


def _words(result: Result, *, applied: bool) -> list[str]:
    """What a person is told of one extension."""
    found = []
    for one in result.sources:
        if one.why_not:
            found.append(f"{one.name}: {one.why_not}")
        if one.large and one.changed:
            found.append(f"{one.name}: {_larger(one)}")
        if one.is_new:
            found.append(f"{one.name} is a new file: add it to the sources of {result.name}")
    if result.why_whole:
        found.append(f"{result.name} stays one file: {result.why_whole}")
    if result.seconds is not None:
        before, after = result.seconds
        found.append(
            f"{result.name}: the same code; stock's build takes {duration(after)}, before"
            f" {duration(before)} ({before / after:.1f}x)"
        )
    if result.needs_flag:
        found.append(f"{result.name}: the call needs no_implicit_headers=True")
        found += [
            f"{result.name}: {one.name} is made of cpp_sources, which have to begin so"
            for one in result.sources
            if one.path is None and one.changed
        ]
    if applied and any(one.changed and one.path for one in result.sources):
        found.append(f"{result.name}: written; `patch -R < FILE{PATCH}` undoes it")
    return found


def _larger(one: Slimmed) -> str:
    if "torch/types.h" in one.large:
        return (
            "names in torch:: need torch/types.h, which has all operators; --aliases puts a line in"
            " its place, and at:: needs neither"
        )
    return f"{', '.join(one.large)} comes with its headers"


def _headers(results: list[Result]) -> None:
    """Which headers are needed, and how often."""
    sources = [one for result in results for one in result.sources if one.changed]
    counts = Counter(header for one in sources for header in one.headers)
    print()
    rows = [("HEADER", "SOURCES")]
    table([*rows, *((header, str(count)) for header, count in counts.most_common())], right=(1,))
