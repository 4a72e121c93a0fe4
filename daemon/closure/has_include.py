"""Headers that a source asks for without reading them: the names in its ``__has_include``.

The answer is part of what was compiled, and no list of dependencies has it. What is asked may be
hidden behind a macro (``#define HAS(x) __has_include(x)``, ``#if HAS(<tbb/tbb.h>)``), so in a file
with the word every name of a header on a line of the preprocessor counts as asked for. A name that
is put together from pieces is not seen.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_WORD = b"__has_include"
_LINE = re.compile(rb"^[ \t]*#[ \t]*(?:if|elif|define)\b(?:\\\r?\n|[^\n])*", re.M)
_DIRECT = re.compile(rb'__has_include(?:_next)?\s*\(\s*(?:<([^>\n]+)>|"([^"\n]+)")')
_NAME = re.compile(rb'<([\w./+-]+)>|"([\w./+-]+)"')


def asked(text: bytes) -> frozenset[str]:
    r"""The names that a file asks for, as they would stand in an include.

    >>> text = b'#if defined(X) && __has_include(<a/b.h>)\n#elif HAS("c.h")\n#include "d.h"\n'
    >>> sorted(asked(text))
    ['a/b.h', 'c.h']
    """
    if _WORD not in text:
        return frozenset()
    pairs = _DIRECT.findall(text) + [
        pair for line in _LINE.findall(text) for pair in _NAME.findall(line)
    ]
    return frozenset(os.fsdecode(angled or quoted) for angled, quoted in pairs)


class Scanner:
    """The names that files ask for, remembered while their size and date stay the same."""

    _LIMIT = 100_000  # files

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, frozenset[str]]] = {}

    def asked(self, path: str, size: int, mtime_ns: int) -> frozenset[str]:
        """The names that the file at ``path`` asks for. Raises OSError."""
        known = self._known.get(path)
        if known is not None and known[:2] == (size, mtime_ns):
            return known[2]
        found = asked(Path(path).read_bytes())
        if len(self._known) >= self._LIMIT:
            self._known.clear()
        self._known[path] = (size, mtime_ns, found)
        return found
