"""Module names within one process: a second, different ``name`` is ``name_v1``, as with stock.

CPython and the dynamic loader keep what they loaded under its name and path, so two variants must
differ in name. Two things are unlike stock: a variant that comes back has its old name (and so its
old artifact), and one that did not build has used none.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from warmcc import digest
from warmcc.request import Request

# What stock does not look at either when it tells variants apart, and what is filled in here.
_LEFT_OUT = {
    "verbose", "environment", "interpreter", "keep_intermediates", "use_pch", "build_directory",
    "module_name",
}  # fmt: skip


def content(request: Request, directory: str | None) -> str:
    """The digest that tells variants of a module apart: arguments, and source files by content.

    Raises OSError when a source cannot be read.
    """
    fields: dict[str, Any] = {
        name: getattr(request, name) for name in request.__struct_fields__ if name not in _LEFT_OUT
    }
    if isinstance(request.functions, dict):
        # Their order is the order of the bindings
        fields["functions"] = list(request.functions.items())
    return digest.of_value([fields, directory, [digest.of_file(path) for path in request.sources]])


class Variants:
    """Which number each variant of each name has. Threads may ask at the same time."""

    def __init__(self) -> None:
        self.forked()
        self._kept: dict[str, dict[str, int]] = {}

    def forked(self) -> None:
        """A child of fork has what was loaded, and none of the threads that were building."""
        self._lock = threading.Lock()
        # Name → content → [number, builds under way]
        self._building: dict[str, dict[str, list[int]]] = {}

    @contextlib.contextmanager
    def module_name(self, name: str, content: str) -> Iterator[str]:
        """The module name for a variant.
        It is kept when the block ends well, and free again when it raises."""
        with self._lock:
            number = self._enter(name, content)
        try:
            yield f"{name}_v{number}" if number else name
        except BaseException:
            self._leave(name, content, keep=False)
            raise
        self._leave(name, content, keep=True)

    def _enter(self, name: str, content: str) -> int:
        kept, building = self._kept.setdefault(name, {}), self._building.setdefault(name, {})
        if content not in building:
            taken = {*kept.values(), *(number for number, _ in building.values())}
            number = kept.get(content, next(n for n in range(len(taken) + 1) if n not in taken))
            building[content] = [number, 0]
        building[content][1] += 1
        return building[content][0]

    def _leave(self, name: str, content: str, *, keep: bool) -> None:
        with self._lock:
            entry = self._building.get(name, {}).get(content)
            if entry is None:
                return  # forked meanwhile
            entry[1] -= 1
            if keep:
                self._kept[name].setdefault(content, entry[0])
            if not entry[1]:
                del self._building[name][content]


variants = Variants()
os.register_at_fork(after_in_child=variants.forked)
