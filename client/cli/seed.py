"""``warmcc seed``: build a known set of extensions in advance.

A set is a TOML or JSON file: ``[[extension]]`` tables (in JSON a list of objects) with the
arguments of torch's ``load_inline``, or of ``load`` where there are ``sources``. ``cpp_files`` and
``cuda_files`` name files, relative to the set, whose texts are the inline sources. In the daemon
that fills a shared store, what was seeded is put there.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from warmcc.client.cli.display.output import talk
from warmcc.errors import RequestError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILES = {"cpp_files": "cpp_sources", "cuda_files": "cuda_sources"}


def add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="FILE|DIR", help="sets: TOML or JSON, or folders of them"
    )


def cmd_seed(arguments: argparse.Namespace) -> int:
    from warmcc.client.calls import arguments as args
    from warmcc.client.connection import ask, exceptions
    from warmcc.protocol import Build, Built, Failed, encode

    wanted = [
        (file, given)
        for path in arguments.paths
        for file in _sets(Path(path))
        for given in _read(file)
    ]
    if not wanted:
        raise RequestError("nothing to build: a set is a .toml or .json file, or a folder of them")
    failed = 0
    for file, given in wanted:
        call = "load" if "sources" in given else "load_inline"
        try:
            request = args.to_request(call, complete(call, given))
            answer = ask.ask(request, len(encode(Build(0, request))), publish=True)
        except (args.NotCarried, RequestError) as told:
            raise RequestError(f"{file}: {told}") from None
        if isinstance(answer, Built):
            talk(f"{answer.outcome:<6} {given['name']}, {answer.seconds:.2f} s")
            continue
        failed += 1
        said = str(exceptions.exception(answer)) if isinstance(answer, Failed) else answer.reason
        talk(f"failed {given['name']}: {said}")
    talk(f"{len(wanted) - failed} of {len(wanted)} built")
    return 1 if failed else 0


def _sets(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if one.suffix in (".toml", ".json"))
    return [path]


def _read(file: Path) -> list[dict[str, Any]]:
    """The extensions of a set, with texts in place of files. Raises RequestError."""
    try:
        text = file.read_text(encoding="utf-8")
        data = json.loads(text) if file.suffix == ".json" else tomllib.loads(text).get("extension")
    except (OSError, ValueError) as error:
        raise RequestError(f"{file}: cannot be read: {error}") from None
    if not isinstance(data, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in data
    ):
        raise RequestError(
            f"{file}: a set is a list of extensions ([[extension]]), each with a name"
        )
    for one in data:
        for files, sources in _FILES.items():
            try:
                texts = [
                    (file.parent / name).read_text(encoding="utf-8") for name in one.pop(files, [])
                ]
            except (OSError, UnicodeDecodeError) as error:
                raise RequestError(f"{file}: {one['name']}: {error}") from None
            if texts:
                one[sources] = [*one.get(sources, []), *texts]
        if "sources" in one:
            one["sources"] = [str((file.parent / source).absolute()) for source in one["sources"]]
    return data


def complete(call: str, given: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call, those that are given and the defaults.
    Raises RequestError for one that it has not."""
    from warmcc.client.calls import api

    parameters = inspect.signature(getattr(api, call)).parameters
    known = {
        name: one.default for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD
    }
    if unknown := sorted(set(given) - set(known)):
        raise RequestError(f"{given['name']}: {call} has no argument {unknown[0]!r}")
    known["cpp_sources"] = [] if call == "load_inline" else known.get("cpp_sources")
    whole = {**{name: value for name, value in known.items() if name in parameters}, **given}
    if call == "load_inline" and not (whole["cpp_sources"] or whole.get("cuda_sources")):
        raise RequestError(f"{given['name']}: no sources given")
    return whole
