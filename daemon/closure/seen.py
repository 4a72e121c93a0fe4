"""What was seen of the files of one build, for all of its units: a package of fifty asks of the
same thousands of paths fifty times.

All units were compiled before anything is looked at, so that one look is as good as another. What
changes later has changed for none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from warmcc.daemon.closure.header_sets import Entry

_T = TypeVar("_T")


class Seen:
    """Belongs to the thread that records a build's closures.

    entries  headers of the toolchain by folder and names
    files    of the user's files, the digest and the names that they ask for
    links    paths of which no part is a link that was set during the build
    there    whether a path exists, and has since before the build
    """

    def __init__(self) -> None:
        self.entries: dict[tuple[str, tuple[str, ...]], list[Entry]] = {}
        self.files: dict[str, tuple[str, frozenset[str]]] = {}
        self.links: set[str] = set()
        self.there: dict[str, bool] = {}
        self._roots: dict[tuple[str, ...], Roots] = {}
        self._answers: dict[Callable[[str], object], dict[str, object]] = {}
        self._real: dict[str, str] = {"/": "/"}

    def roots(self, folders: Iterable[str]) -> Roots:
        """One for equal folders."""
        key = tuple(folders)
        if key not in self._roots:
            self._roots[key] = Roots(key, self.real)
        return self._roots[key]

    def real(self, path: str) -> str:
        """``os.path.realpath``, which looks at each part of a path for each of a folder's."""
        known = self._real.get(path)
        if known is None:
            above, _, name = path.rpartition("/")
            if path[:1] != "/" or name in ("", ".", ".."):
                return os.path.realpath(path)
            known = os.path.join(self.real(above or "/"), name)
            if os.path.islink(known):
                known = os.path.realpath(known)
            self._real[path] = known
        return known

    def asked(self, question: Callable[[str], _T], path: str) -> _T:
        """What ``question`` (``os.path.isfile``, …) says of a path."""
        known = self._answers.setdefault(question, {})
        if path not in known:
            known[path] = question(path)
        return known[path]  # type: ignore[return-value]


class Roots:
    """Folders, and what lies under them: by the path as it is written, or by where it leads."""

    def __init__(
        self, folders: Iterable[str], real: Callable[[str], str] = os.path.realpath
    ) -> None:
        self._written = [path.rstrip("/") or "/" for path in folders]
        self._leads_to = real
        self._real = [real(path) for path in self._written]
        self._known: dict[str, bool] = {}

    def hold(self, folder: str) -> bool:
        known = self._known.get(folder)
        if known is None:
            real = self._leads_to(folder)
            known = any(within(real, root) for root in self._real) or (
                "/.." not in folder and any(within(folder, root) for root in self._written)
            )
            self._known[folder] = known
        return known


def within(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies in it, by its text."""
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")
