r"""The signatures that pybind11 writes into docstrings.

>>> (one,) = read("f(x: int, /, *, y: str = 'a, b') -> dict[str, int]\n\nSays.", "f")
>>> [(one.name, one.kind, one.default) for one in one.parameters]
[('x', 'int', None), ('/', '', None), ('*', '', None), ('y', 'str', "'a, b'")]
>>> one.result, one.text
('dict[str, int]', 'Says.')
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPENING, _CLOSING = "([{<", ")]}>"


class Unreadable(Exception):
    """The text is no signature of pybind11's."""


@dataclass(frozen=True)
class Parameter:
    """``name`` may be ``/`` or ``*``, or begin with stars; ``kind`` is empty where none is said."""

    name: str
    kind: str
    default: str | None


@dataclass(frozen=True)
class Signature:
    """One function, or one of its overloads. ``text`` is its documentation."""

    parameters: tuple[Parameter, ...]
    result: str
    text: str


def read(docstring: str, name: str) -> list[Signature]:
    """The signatures of a function: several for an overloaded one. Raises Unreadable."""
    head = f"{name}(*args, **kwargs)\nOverloaded function.\n"
    if not docstring.startswith(head):
        return [_one(docstring, name)]
    rest = docstring[len(head) :]
    found: list[Signature] = []
    while (at := rest.find(f"\n{len(found) + 1}. {name}(")) >= 0:
        start = at + len(f"\n{len(found) + 1}. ")
        end = rest.find(f"\n{len(found) + 2}. {name}(", start)
        found.append(_one(rest[start : end if end >= 0 else None], name))
        rest = rest[end:] if end >= 0 else ""
    if not found:
        raise Unreadable(docstring)
    return found


def _one(docstring: str, name: str) -> Signature:
    # A property's has no name, or the one that its author gave the function
    started = re.match(rf"{re.escape(name)}\(" if name else r"[^\s(]*\(", docstring)
    if started is None:
        raise Unreadable(docstring)
    parts, end = _split(docstring, started.end())
    result, _, text = docstring[end:].partition("\n")
    if not result.startswith(" -> "):
        raise Unreadable(docstring)
    return Signature(tuple(map(_parameter, parts)), result[4:].strip(), text.strip("\n"))


def _split(text: str, start: int) -> tuple[list[str], int]:
    """What stands between two parentheses, split at its commas, and where it ends. Defaults are
    anything that Python shows of a value. Raises Unreadable."""
    parts, depth, at, begin = [], 0, start, start
    while at < len(text):
        letter = text[at]
        if letter in "\"'":
            at = _end_of_string(text, at)
        elif letter in _OPENING:
            depth += 1
        elif letter == ")" and depth == 0:
            parts.append(text[begin:at].strip())
            return [part for part in parts if part], at + 1
        elif letter in _CLOSING and text[at - 1] != "-":  # and no arrow
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    raise Unreadable(text)


def _end_of_string(text: str, at: int) -> int:
    """Raises Unreadable."""
    quote = text[at]
    end = at + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise Unreadable(text)
    return end


def _parameter(text: str) -> Parameter:
    name, colon, rest = text.partition(":")
    if not colon:
        return Parameter(name, "", None)
    kind, equals, default = rest.partition(" = ")
    return Parameter(name.strip(), kind.strip(), default.strip() if equals else None)
