"""Inductor's own precompiled header is left out, as the daemon has one for the same header.

Inductor preprocesses its header in each process, to see whether a precompiled one still fits, and
precompiles it once per user. The command then forces the header in, which the source includes first
anyway: so the header's name in the command is enough. A command that Inductor has to run itself
gets its own precompiled header after all.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable
from typing import Any

from warmcc.client.inductor import way_back

_FOLDER = "torch/csrc/inductor/"
_FIRST = re.compile(rf"\s*#\s*include\s*<({re.escape(_FOLDER)}[\w/.]+)>[ \t]*(?:\n|$)")
_OUTPUT = ("-o", "-include")

# Header and flags → what makes torch's own precompiled header for them
_skipped: dict[tuple[str, ...], Callable[[], str]] = {}


def left_out(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of the function that makes a precompiled header, and gives the path
    of the header that a command forces in."""

    @functools.wraps(original)
    def precompile(header: str, hashable_cmd_line: str, **named: Any) -> Any:
        if way_back.is_off() or not header.startswith(_FOLDER):
            return original(header, hashable_cmd_line, **named)
        flags = _flags(shlex.split(hashable_cmd_line), "i")
        known = (header, *flags)
        _skipped[known] = lambda: original(header, hashable_cmd_line, **named)
        return header

    return precompile


def forced(value: str | None) -> bool:
    """Whether an ``-include`` has the name of a header that was left out."""
    return value is not None and any(known[0] == value for known in _skipped)


def first_of(text: str) -> str | None:
    """The header of Inductor's that a source begins with."""
    found = _FIRST.match(text)
    return None if found is None else found[1]


def with_stocks(cmd_line: str) -> str:
    """A command with torch's own precompiled header, which is made now, if it forces in one that
    was left out."""
    words = shlex.split(cmd_line)
    at = next((i for i, word in enumerate(words[:-1]) if word == "-include"), -1)
    if at < 0:
        return cmd_line
    source = next((word for word in words[1:] if word.endswith(".cpp")), "")
    make = _skipped.get((words[at + 1], *_flags(words, source)))
    if make is None:
        return cmd_line
    words[at + 1] = make()
    return shlex.join(words)


def _flags(words: list[str], source: str) -> list[str]:
    """The flags of a command, without its files."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _OUTPUT:
            next(rest, None)
        elif word != source:
            found.append(word)
    return found
