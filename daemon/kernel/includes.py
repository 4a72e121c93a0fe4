"""The files that NVRTC may read for a text: it does not say which it read.

All directives count, whatever the conditions around them, so the list holds more than what was
read. A name that is found nowhere must stay missing. What a macro includes is not seen: in a file
of the user's that keeps a result from being kept; the toolkit's own headers do it for parts of
themselves, and change together.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

_SPLICE = re.compile(rb"\\\r?\n")
_COMMENT = re.compile(rb"/\*.*?\*/|//[^\n]*", re.S)
_DIRECTIVE = re.compile(
    rb"^[ \t\f\v]*(?:#|%:)[ \t\f\v]*(?:include|include_next|import|embed)\b[ \t\f\v]*([^\n]*)", re.M
)
_NAME = re.compile(rb'<([^>\n]+)>|"([^"\n]+)"')
_LIMIT = 20_000  # files whose directives are remembered


class ByMacro(Exception):
    """A file of the user's includes what a macro names."""


@dataclass
class Reads:
    """The files that may be read, and paths that must stay missing."""

    files: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)


def directives(text: bytes) -> list[tuple[str, bool]]:
    r"""The names that a text includes, each with whether it stands in quotes; an empty one is what
    a macro names.

    >>> directives(b'#include <a.h>\n# include "b.h" // c\n/* x */ #include D\n')
    [('a.h', False), ('b.h', True), ('', False)]
    """
    found = []
    for words in _DIRECTIVE.findall(_COMMENT.sub(b" ", _SPLICE.sub(b"", text))):
        match = _NAME.match(words)
        if match is None:
            found.append(("", False))
        else:
            angled, quoted = match.groups()
            found.append((os.fsdecode(angled or quoted), quoted is not None))
    return found


class Includes:
    """Finds what a text may read; remembers what files include while they stay the same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, list[tuple[str, bool]]]] = {}

    def reads(self, text: str, folders: list[str], system: list[str], forced: list[str]) -> Reads:
        """What a text may read, with headers in ``folders``, which are searched in their order;
        those of ``system`` are the toolkit's. ``forced`` names are included in front of it.
        Raises ByMacro, OSError."""
        found = Reads()
        own = directives(text.encode("utf-8", "surrogateescape"))
        todo: list[tuple[str, str]] = []  # names, and the folder of the file that includes them
        self._add(todo, [*((name, True) for name in forced), *own], "")
        seen: set[tuple[str, str]] = set()
        while todo:
            item = todo.pop()
            if item in seen:
                continue
            seen.add(item)
            name, beside = item
            places = dict.fromkeys([*filter(None, [beside]), *folders])
            paths = [os.path.join(place, name) for place in places]
            there = [path for path in paths if os.path.isfile(path)]
            if not there:
                found.absent.update(paths)
            for path in there:  # include_next may read the later ones
                if path not in found.files:
                    found.files.add(path)
                    is_systems = any(path.startswith(f"{folder}/") for folder in system)
                    names = self._of(path)
                    if is_systems:
                        names = [pair for pair in names if pair[0]]
                    self._add(todo, names, os.path.dirname(path))
        return found

    @staticmethod
    def _add(todo: list[tuple[str, str]], names: list[tuple[str, bool]], folder: str) -> None:
        for name, quoted in names:
            if not name:
                raise ByMacro("a macro names what is included")
            todo.append((name, folder if quoted else ""))

    def _of(self, path: str) -> list[tuple[str, bool]]:
        state = os.stat(path)
        known = self._known.get(path)
        if known is not None and known[:2] == (state.st_size, state.st_mtime_ns):
            return known[2]
        found = directives(Path(path).read_bytes())
        if len(self._known) >= _LIMIT:
            self._known.clear()
        self._known[path] = (state.st_size, state.st_mtime_ns, found)
        return found
