"""The commands that Inductor would run: one generated source to a library, or to an object.

The text of the source goes to the daemon, so that equal code is compiled once, for all processes
and folders. The daemon's precompiled header stands for the header that the source begins with.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

from warmcc.client.calls import arguments as args
from warmcc.client.calls import compilers, objects
from warmcc.client.connection import ask
from warmcc.client.inductor import headers, packed, way_back
from warmcc.client.inductor.way_back import Left
from warmcc.client.launcher.command_line import NotOurs, read
from warmcc.client.loading import loader
from warmcc.errors import WarmccError
from warmcc.protocol import Build, Built, Declined, Failed, encode
from warmcc.request import Request

_COMPILER = re.compile(r"(?:[\w.-]+-)?(?:gcc|g\+\+|cc|c\+\+)(?:-[\d.]+)?")
_PAIRED = ("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter", "-L", "-l", "-include")
_JOINED = ("-D", "-U", "-I", "-L", "-l")
_OF_LINKER = re.compile(r"-[lL].*|-Wl,.*|-shared")
_OF_BOTH = re.compile(r"-f.*|-m.*|-O.*|-shared|-pthread|-static-.*|-std=.*")


class Split(NamedTuple):
    """The words of a command, for the compiler and for the linker. ``source`` and ``target`` are
    paths; ``linker`` is empty where the target is an object. ``forced`` is the header that was left
    out of the words."""

    program: str
    source: str
    target: str
    compiler: list[str]
    linker: list[str]
    forced: str | None


def served(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of the function that runs a command."""

    @functools.wraps(original)
    def run(cmd_line: str, cwd: str | None = None) -> Any:
        if way_back.is_off():
            return original(headers.with_stocks(cmd_line), cwd)
        words = shlex.split(cmd_line)
        try:
            _make(words)
        except Left as left:
            is_kernel = any(map(_is_kernel, words))
            way_back.note(left, may_fail=is_kernel)
            if is_kernel:
                packed.record_left(str(left))
            return original(headers.with_stocks(cmd_line), cwd)
        return b""  # what the compiler said

    return run


def _make(words: list[str]) -> None:
    """Have the daemon do what a command does. Raises Left."""
    command = split(words)
    try:
        request = as_request(command, _text_of(command))
    except (args.NotCarried, UnicodeError, OSError) as error:
        raise Left(f"{type(error).__name__}: {error}") from None
    answer = packed.answer(request) or _asked(request)
    if isinstance(answer, Declined):
        raise Left(answer.reason, said=not answer.expected)
    if isinstance(answer, Failed):  # which the compiler says itself, in the words that torch knows
        raise Left("a source that does not compile")
    packed.record(request, answer)
    try:
        put(answer, command.target)
    except OSError as error:
        raise Left(f"{command.target} cannot be written: {error.strerror}") from None


def _asked(request: Request) -> Built | Failed | Declined:
    """The daemon's answer. Raises Left."""
    try:
        return ask.ask(request, len(encode(Build(0, request))))
    except UnicodeError as error:
        raise Left(f"{type(error).__name__}: {error}") from None
    except WarmccError as error:
        raise Left(str(error), said=True) from None


def _is_kernel(word: str) -> bool:
    """Whether a word of a command is a source of Inductor's, and no trial of a compiler."""
    if not word.endswith(".cpp"):
        return False
    try:
        with open(word, encoding="utf-8", errors="replace") as file:
            return headers.first_of(file.read(4096)) is not None
    except OSError:
        return False


def put(answer: Built, target: str) -> None:
    """Put a copy of the result where the command would, in one step. Raises OSError."""
    with loader.replacing(target, 0o777) as draft:
        shutil.copyfile(answer.path, draft)


def split(words: list[str]) -> Split:
    """Read a command. Raises Left for one that is not one C++ source to a library or an object."""
    if _COMPILER.fullmatch(os.path.basename(words[0])) is None:
        raise Left("another compiler than g++")
    compiles = "-c" in words
    try:
        command = read(words[1:] if compiles else [*words[1:], "-c"], is_nvcc=False)
    except NotOurs as reason:
        raise Left(f"a command that is not one source: {reason}") from None
    if command.depfile is not None:
        raise Left("a command that writes its dependencies")
    compiler: list[str] = []
    linker: list[str] = []
    forced = None
    for option, value in _options(command.flags):
        if option.startswith("-g"):
            raise Left("debugging symbols")  # with the folders of the build
        word = option if value is None else f"{option}{value}"
        if option == "-include" and headers.forced(value):
            forced = value
            continue
        if not _OF_LINKER.fullmatch(word) or word == "-shared":
            compiler += [word] if value is None or option in _JOINED else [option, value]
        if _OF_LINKER.fullmatch(word) or _OF_BOTH.fullmatch(word):
            linker.append(word)
    if compiles != command.object.endswith(".o") or (not compiles and "-shared" not in linker):
        raise Left("a target of another kind")
    linker = [] if compiles else linker
    return Split(words[0], command.source, command.object, compiler, linker, forced)


def _options(flags: list[str]) -> list[tuple[str, str | None]]:
    """Flags with the values of those that have one in the next word."""
    rest = iter(flags)
    return [(word, next(rest, "") if word in _PAIRED else None) for word in rest]


def _text_of(command: Split) -> str:
    """Raises Left, OSError, UnicodeError."""
    if not os.path.isabs(command.source):
        raise Left("a source that is named by a relative path")
    with open(command.source, encoding="utf-8", newline="") as file:
        return file.read()


def as_request(command: Split, text: str) -> Request:
    """What the daemon is asked for, by a source's text. Raises Left, NotCarried."""
    if command.forced is not None and headers.first_of(text) != command.forced:
        raise Left("a header is forced in that the source does not begin with")
    environment = objects.environment(None)
    environment["CXX"] = compilers.for_cpp(command.program, environment.get("CXX", "c++"))
    return Request(
        call="compile", name=os.path.basename(command.source),
        module_name=os.path.basename(command.target), interpreter=args.interpreter(),
        environment=environment, cpp_sources=[text],
        extra_cflags=list(map(_quoted, command.compiler)),
        extra_ldflags=list(map(_quoted, command.linker)),
        build_directory=os.path.dirname(os.path.abspath(command.source)), is_python_module=False,
    )  # fmt: skip


def _quoted(word: str) -> str:
    """A word as it stands in a build.ninja."""
    return shlex.quote(word).replace("$", "$$")
