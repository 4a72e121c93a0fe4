"""What a function's parameters are called in its C++ source.

Only for the eye: a function of ``functions=`` takes no argument by name, so a stub has these names
in front of a ``/``. Nothing is found where the source is not plain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|^[ \t]*#[^\n]*", re.S | re.M
)
_LAST = re.compile(r"[\w>&*\]]\s*?[\s>&*\]](\w+)$", re.S)


def names(sources: Iterable[str], function: str, count: int) -> list[str] | None:
    """The names of the ``count`` parameters of a function, or None.

    >>> names(["at::Tensor f(const at::Tensor& x, std::vector<int> by = {1, 2});"], "f", 2)
    ['x', 'by']
    >>> names(["int f(int);", "int g() { return f(a + b); }"], "f", 1)
    """
    for source in sources:
        plain = _NOISE.sub(" ", source)
        for found in re.finditer(rf"[\w>&*]\s+[&*]*{re.escape(function)}\s*\(", plain):
            parts = _parts(plain, found.end())
            named = [_LAST.search(part) for part in parts]
            if len(parts) == count and None not in named:
                words = [one[1] for one in named if one is not None]
                if len(set(words)) == count and not any(word[0].isdigit() for word in words):
                    return words
    return None


def _parts(text: str, at: int) -> list[str]:
    """The parameters behind an opening parenthesis, without their defaults; none for what is no
    declaration."""
    parts, depth, default = [""], 0, False
    while at < len(text) and (depth or text[at] != ")"):
        letter = text[at]
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            parts.append("")
            default = False
        elif letter == "=" and depth == 0:
            default = True
        elif not default:
            parts[-1] += letter
        at += 1
    behind = text[at + 1 :].lstrip()[:1]
    return [part.strip() for part in parts if part.strip()] if behind in ("{", ";") else []
