"""``warmcc stubs``: the ``.pyi`` of extensions that were built."""

from __future__ import annotations

import argparse
import os

from warmcc.client.cli.display.output import talk
from warmcc.errors import RequestError


def add_stubs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "of", nargs="+", metavar="NAME|KEY|FILE",
        help="an extension in the store, by its name (the last used one) or the beginning of its"
        " key (`warmcc cache ls`), or a shared object by its path",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-o", dest="output", metavar="FILE", help="write the stub there (default: print it)"
    )
    where.add_argument("--to", metavar="FOLDER", help="write NAME.pyi for each of them there")


def cmd_stubs(arguments: argparse.Namespace) -> int:
    try:
        texts = _texts(arguments)
        if arguments.output is not None:
            (text,) = texts.values()
            _write(arguments.output, text)
        elif arguments.to is not None:
            _make_folder(arguments.to)
            for name, text in texts.items():
                _write(os.path.join(arguments.to, f"{name}.pyi"), text)
    except (RequestError, OSError) as error:  # the latter of a full disk, for example
        talk(f"warmcc: {error}")
        return 2
    if arguments.output is None and arguments.to is None:
        print(*texts.values(), end="")
    return 0


def _texts(arguments: argparse.Namespace) -> dict[str, str]:
    """By the names of their modules: all of them, before anything is written.
    Raises RequestError, OSError."""
    from warmcc.client.stubs.stub import stub

    if len(arguments.of) > 1 and arguments.to is None:
        raise RequestError("more than one stub: say where they go, with --to FOLDER")
    texts: dict[str, str] = {}
    for one in arguments.of:
        path, sources = _found(one)
        name = os.path.basename(path).split(".")[0]
        if name in texts:
            raise RequestError(f"two of them would be {name}.pyi; name one")
        texts[name] = stub(path, sources=sources)
    return texts


def _found(one: str) -> tuple[str, list[str]]:
    """The shared object, and its C++ as far as it is known. Raises RequestError, DaemonError."""
    from warmcc.client.connection.described import described
    from warmcc.client.stubs.stub import is_cpp

    if "/" in one or one.endswith(".so"):
        if not os.path.isfile(one):
            raise RequestError(f"{one} is not a file")
        return one, []
    found, why_none = described(one)
    named = [artifact for artifact in found if artifact.request.module_name == one] or found
    if not named:
        raise RequestError(
            f"no extension in the store is called {one!r}, or has a key that begins so: {why_none}"
        )
    built = named[0].built
    if named is found and len({artifact.key for artifact in named}) > 1:
        raise RequestError(f"{len(named)} keys begin with {one}; write more of it")
    return built.path, [text for name, text in built.sources.items() if is_cpp(name)]


def _make_folder(path: str) -> None:
    """Raises RequestError."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{path} cannot be made: {error.strerror}") from None


def _write(path: str, text: str) -> None:
    """In one step: an editor never reads half of it. Raises RequestError."""
    from warmcc.client.loading.loader import replacing

    try:
        with replacing(path, 0o666) as draft, open(draft, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from None
