"""C++ text as tokens: identifiers, numbers, literals, punctuation; without comments.
Preprocessor lines are left out as well.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//(?:[^\n\\]|\\.)*|/\*.*?\*/|\\\n)
    |(?P<directive>(?m:^)[ \t]*\#(?:[^\n\\]|\\.)*)
    |(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)")
    |(?P<text>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:'?[\w.]|[eEpP][+-])*)
    |(?P<mark2>::|->|\[\[|\]\]|[^\s\w])""",
    re.S | re.X,
)


def split(text: str) -> list[str]:
    """The tokens of a source. Raises ValueError where it cannot be read."""
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"cannot read {text[at : at + 20]!r}")
        if match.lastgroup not in ("skip", "directive"):
            found.append(match.group())
        at = match.end()
    return found
