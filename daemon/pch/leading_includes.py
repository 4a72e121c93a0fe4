"""The prelude of a unit: the headers before the user's own code that warm state replaces.

A prelude is a list of headers as they stand between angle brackets. A unit may use the precompiled
header of any prelude that its own leading includes begin with: what it includes after that finds
its guards set, or is parsed.
"""

from __future__ import annotations

import re

# For each header of a prelude the macros of a unit's own that are defined in front of it; None
# where nothing is.
Macros = tuple[frozenset[str] | None, ...]

EXTENSION = ("torch/extension.h",)

# Headers that cost seconds. A prelude ends with the last of these; what follows is cheap, and
# differs too often.
_HEAVY = re.compile(r"(?:torch|ATen|c10|caffe2|pybind11)/")

# Nothing but blanks and comments may stand between: a macro defined there could change what the
# next header says.
_INCLUDE = re.compile(
    r"(?:\s|//[^\n\\]*\n|/\*(?:[^*\\]|\\(?![ \t\v\f\r]*\n)"
    r"|\*(?![/\\]))*\*/)*#[ \t]*include[ \t]*<([^<>\n]+)>[ \t]*(?://[^\n\\]*)?(?:\r?\n|$)"
)


def leading(text: str) -> tuple[str, ...]:
    r"""The headers that a source includes before it says anything else.

    >>> leading("#include <torch/extension.h>\n// mine\n#include <vector>\nint x;\n#include <map>")
    ('torch/extension.h', 'vector')
    """
    if "??/" in text:  # with some flags a backslash, which may join the next line to a comment
        return ()
    if "\0" in text[:-1] or re.search(
        r"\r(?!\n)", text
    ):  # g++ skips the first, and ends a line at the other
        return ()
    found: list[str] = []
    at = 1 if text.startswith("\ufeff") else 0
    while match := _INCLUDE.match(text, at):
        found.append(match[1])
        at = match.end()
    return tuple(found)


def worth_having(headers: tuple[str, ...]) -> tuple[str, ...]:
    """The leading includes that a PCH is made of; empty when it is not worth the space."""
    heavy = [index for index, name in enumerate(headers) if _HEAVY.match(name)]
    return headers[: heavy[-1] + 1] if heavy else headers


def is_heavy(headers: tuple[str, ...]) -> bool:
    """Whether this is one header of torch, which many units may share."""
    return len(headers) == 1 and _HEAVY.match(headers[0]) is not None


def is_torchs(headers: tuple[str, ...]) -> bool:
    """Whether all headers are torch's, Python's or the standard library's."""
    return all(_HEAVY.match(name) or name == "Python.h" or "." not in name for name in headers)


def text(headers: tuple[str, ...]) -> str:
    """The header file that includes them."""
    return "".join(f"#include <{name}>\n" for name in headers)
