"""What must not appear: files that the compiler would read instead of those that it read.

A header found in one folder is shadowed by a file of the same relative name in a folder that is
searched earlier: an include directory further in front, or the folder of the file that includes it
(for ``#include "..."``). Which file included which is not known here, so the folder of every user
file counts as searched first. That may cost a needless miss, once; it never hides a change.

Nearly always the first component of a relative name (``torch`` of ``torch/extension.h``) is missing
already in the earlier folder. So one listing of that folder answers for thousands of headers: a
*guard* holds such names and the folders where they must not appear. Where the first component is
there, the shortest missing path goes into ``absent``.

Folders of the toolchain are guarded against each other in the same way (a header that is installed
in ``/usr/local/include`` comes before the one in ``/usr/include``), by names that their header set
says must be absent.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.closure.reading import ChangedDuringBuild
from warmcc.daemon.closure.seen import Seen, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Guard(msgspec.Struct, frozen=True, omit_defaults=True):
    """Names that must not appear in folders, lest they hide a header that was read.
    None of ``names``, and none of the names of the header set ``headers``, is in any of
    ``folders``, but for those that each folder maps to: they were there when the result was
    made."""

    folders: dict[str, list[str]]
    names: list[str] = []
    headers: str = ""

    def holds(self, of_set: frozenset[str], listings: dict[str, list[str]]) -> bool:
        """Whether none has appeared; ``listings`` caches folders for all guards of a closure."""
        own = frozenset(self.names)
        for folder, known in self.folders.items():
            if folder not in listings:
                try:
                    listings[folder] = _listing(folder)
                except OSError:
                    return False
            listing = listings[folder]
            if own.isdisjoint(listing) and of_set.isdisjoint(listing):
                continue
            if not (own | of_set).intersection(listing).issubset(known):
                return False
        return True


class Shadows(NamedTuple):
    """The guards of a compile, before they are stored.
    ``absent`` paths, in whosever folders, and the user's ``folders`` where neither
    ``user_names`` nor ``toolchain_names`` may appear, but for those that each maps to."""

    absent: set[str]
    folders: dict[str, list[str]]
    user_names: set[str]
    toolchain_names: set[str]


class Search:
    """The include directories of one compile, in the order in which they are searched.

    ``is_toolchain`` says of a folder whether it belongs to the toolchain; ``seen`` is the build's,
    which began at ``started``. What stands in front of a header that was read, but appeared after
    that, would have been read by the next build: each method raises ChangedDuringBuild for it.
    """

    def __init__(
        self, directories: Iterable[str], is_toolchain: Callable[[str], bool], seen: Seen,
        started: Marker,
    ) -> None:  # fmt: skip
        unique = dict.fromkeys(path.rstrip("/") or "/" for path in directories)
        self._directories = [(path, not is_toolchain(path)) for path in unique]
        self._seen = seen
        self._started = started

    def shadows(self, user_files: Iterable[str], toolchain: Mapping[str, Iterable[str]]) -> Shadows:
        """For the user files, and the names of toolchain headers per folder, that a compile read.

        Raises OSError for a folder that cannot be listed.
        """
        users: dict[str, list[str]] = {}
        for folder, _, name in (path.rpartition("/") for path in user_files):
            users.setdefault(folder, []).append(name)
        found = Shadows(set(), {}, set(), set())
        guarded = dict.fromkeys(users)
        for theirs, folders in ((False, users), (True, toolchain)):
            for folder, names in folders.items():
                for index, below in self._positions(folder, theirs):
                    earlier = [path for path, own in self._directories[:index] if own or not theirs]
                    guarded.update(dict.fromkeys(earlier))
                    tops = [below.partition("/")[0]] if below else names
                    (found.toolchain_names if theirs else found.user_names).update(tops)
                    for place in (*users, *earlier):
                        found.absent.update(self._missing(place, below, names))
                    if theirs:
                        for place in (path for path, own in self._directories[:index] if not own):
                            found.absent.update(self._first_missing(place, below, names))
        names_of_all = found.user_names | found.toolchain_names
        for place in guarded:
            known = sorted(names_of_all.intersection(_listing(place)))
            for name in known:
                self._exists(f"{place}/{name}")
            found.folders[place] = known
        return found

    def _positions(self, folder: str, theirs: bool) -> list[tuple[int, str]]:
        """Each include directory above ``folder``: its place in the order, and the way down."""
        found = []
        for index, (directory, own) in enumerate(self._directories):
            if theirs and own:
                continue
            if within(folder, directory):
                found.append((index, folder[len(directory) :].strip("/")))
            elif within(real := self._leads_to(folder), start := self._leads_to(directory)):
                found.append((index, real[len(start) :].strip("/")))
        return found

    def _missing(self, place: str, below: str, names: Iterable[str]) -> Iterable[str]:
        """The shortest missing paths to ``below/name`` in ``place``, without guarded names."""
        covered = len(place) + 1
        return (
            [path for path in self._first_missing(place, below, names) if "/" in path[covered:]]
            if below
            else []
        )

    def _first_missing(self, place: str, below: str, names: Iterable[str]) -> list[str]:
        path, folders = place, []
        for part in below.split("/") if below else []:
            path = f"{path}/{part}"
            if not self._exists(path):
                return [path]
            folders.append(path)
        there = {full: self._exists(full) for full in (f"{path}/{name}" for name in names)}
        if any(there.values()):  # a folder that was moved here brings old files
            for folder in folders:
                self._check(folder, _look(folder))
        return [full for full, exists in there.items() if not exists]

    def asked(self, names: Iterable[str], places: Iterable[str] = ()) -> tuple[set[str], set[str]]:
        """The paths that answer ``__has_include`` for names, and those that must stay missing.
        They are looked for in ``places`` of their own first, then in every folder that is
        searched. A folder of such a name does not count. Raises OSError for a path that leads
        to no file."""
        there: set[str] = set()
        missing: set[str] = set()
        folders = [*places, *(path for path, _ in self._directories)]
        for name in names:
            for path in (os.path.join(folder, name) for folder in folders):
                if self._seen.asked(os.path.isfile, path):
                    there.add(path)
                elif not self._exists(path):
                    missing.add(path)
                elif not self._seen.asked(os.path.isdir, path):
                    raise OSError(errno.EINVAL, "not a regular file", path)
        return there, missing

    def _leads_to(self, path: str) -> str:
        return self._seen.real(path)

    def _exists(self, path: str) -> bool:
        known = self._seen.there.get(path)
        if known is None:
            found = _look(path)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                self._check(path, found)
            known = self._seen.there[path] = found is not None
        return known

    def _check(self, path: str, found: os.stat_result | None) -> None:
        if found is not None and not self._started.precedes(path, found):
            raise ChangedDuringBuild(path, "appeared during the build")

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Those of some paths that are not there, of which one might have been read otherwise."""
        return {path for path in paths if not self._exists(path)}


def _look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _listing(folder: str) -> list[str]:
    """The names in a folder; none when there is no such folder. Raises OSError."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
