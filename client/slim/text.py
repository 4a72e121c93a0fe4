"""A source as text: its includes, the names that it mentions, and the same source with other
includes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(?:<([^<>\n]+)>|\"([^\"\n]+)\")[^\n]*$", re.M)
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|endif)")
_NOT_CODE = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?\*/|R\"([^()\\\s]{0,16})\(.*?\)\1\""
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'(?![\w'])",
    re.S,
)
_NAME = re.compile(r"(?:[A-Za-z_]\w*\s*::\s*)*[A-Za-z_]\w*")
_DEFINES = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
PER_OPERATOR = "AT_PER_OPERATOR_HEADERS"
# What torch/types.h says, in place of that header.
ALIAS = "namespace torch { using namespace at; }"


@dataclass(frozen=True)
class Include:
    """One line: its number from 0, the header, whether it is in angle brackets, and whether it is
    between ``#if`` and ``#endif``."""

    line: int
    header: str
    angled: bool
    conditional: bool = False


def includes(text: str) -> list[Include]:
    r"""The includes that are not in a comment, in their order.

    >>> found = includes('#include <a.h>\n// #include <b.h>\n#include "c.h"\n')
    >>> [(one.line, one.header, one.angled) for one in found]
    [(0, 'a.h', True), (2, 'c.h', False)]
    """
    found, depth = [], 0
    for number, line in enumerate(_without_comments(text).split("\n")):
        if condition := _CONDITION.match(line):
            depth += -1 if condition[1] == "endif" else 1
        elif match := _INCLUDE.match(line):
            found.append(Include(number, match[1] or match[2], match[1] is not None, depth > 0))
    return found


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _without_comments(text: str) -> str:
    """Nor raw strings, which may have lines that look like code."""
    return _NOT_CODE.sub(lambda match: _blank(match) if match[0][0] in "/R" else match[0], text)


def code(text: str) -> str:
    """The text with blanks in place of comments, strings and includes; lines stay where they are.

    >>> code('int f; // g "h"')
    'int f;         '
    """
    return _INCLUDE.sub(_blank, _NOT_CODE.sub(_blank, _without_comments(text)))


def names(text: str) -> set[str]:
    """All names in code, with what they are qualified by.

    >>> sorted(names("at::Tensor f(int x) { return x.to(at :: kCPU); }"))
    ['at::Tensor', 'at::kCPU', 'f', 'int', 'return', 'to', 'x']
    """
    return {re.sub(r"\s", "", match) for match in _NAME.findall(code(text))}


def defines(text: str) -> set[str]:
    """The macros that the text itself defines."""
    return set(_DEFINES.findall(_without_comments(text)))


@dataclass(frozen=True)
class Block:
    """The lines that take the place of torch's includes: ``headers``, ``lines`` behind them, and
    whether a macro in front has torch's headers include single operators."""

    headers: tuple[str, ...]
    per_operator: bool = False
    lines: tuple[str, ...] = ()

    def text(self) -> str:
        rows = [f"#include <{header}>" for header in self.headers]
        if self.per_operator:
            rows.insert(0, f"#define {PER_OPERATOR}")
        return "\n".join([*rows, *self.lines])


def rewritten(text: str, removed: Sequence[Include], block: Block) -> str:
    r"""The source with a block in place of includes, where the first of them was; at the top
    where there is none.

    >>> text = "// one\n#include <t.h>\n#include <vector>\n#include <u.h>\nint x;\n"
    >>> gone = [one for one in includes(text) if one.header != "vector"]
    >>> print(rewritten(text, gone, Block(("a.h", "b.h"))), end="")
    // one
    #include <a.h>
    #include <b.h>
    #include <vector>
    int x;
    """
    lines = text.split("\n")
    gone = {one.line for one in removed}
    at = min(gone, default=0)
    kept = [line for number, line in enumerate(lines) if number not in gone]
    new = block.text()
    return "\n".join([*kept[:at], *([new] if new else []), *kept[at:]])


def numbered(text: str, removed: Sequence[Include], block: Block, name: str) -> str:
    """The same for a comparison: lines keep their numbers, which some macros compile in."""
    lines = text.split("\n")
    gone = {one.line for one in removed}
    at = min(gone, default=0)
    blanked = ["" if number in gone else line for number, line in enumerate(lines)]
    return "\n".join([*blanked[:at], block.text(), f'#line {at + 1} "{name}"', *blanked[at:]])
