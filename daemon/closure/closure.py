"""What a result was made of, and whether that is still so.

A closure lists every file that the compilers read. Files of the user are known by content, which is
read again each time; files of the toolchain by the header sets that they form (header_sets.py); and
what must not appear, so that nothing shadows them, by ``absent`` and ``guards`` (shadowing.py).

A closure is recorded after the build, from files that must not have changed since before it: each
file's ctime has to be older than the build's ``Marker``. What that cannot see:

- a header (not a source) on a network filesystem whose server's clock is behind this machine's by
  more than the time between the build's start and the change;
- a folder, moved in place of another one during the build, with all files in it older than the
  build;
- a write through a mapping that was opened before the build, until the kernel takes note of it;
- the system's clock set back and, by the same amount, forth again during the build (set once, it is
  noticed).

A file dated in the future, or changed in the future by its own filesystem's clock, counts as
changing: its result is never kept, which is slow and right.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from warmcc.contents import Contents
from warmcc.daemon.closure import following, has_include, header_sets
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.closure.reading import ChangedDuringBuild, Reading
from warmcc.daemon.closure.seen import Roots, Seen
from warmcc.daemon.closure.shadowing import Guard, Search
from warmcc.daemon.system.trails import Paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warmcc.daemon.system.page import Page


__all__ = ["ChangedDuringBuild", "Closure", "Closures"]

_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl")


class Closure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a result depends on.
    ``files``: the user's, path to SHA-256; ``headers``: digests of header sets; ``absent``:
    paths that must still not exist; ``guards``: names that must not appear in folders; ``links``:
    paths that a compiler followed, and where they have to lead."""

    files: dict[str, str] = {}
    headers: list[str] = []
    absent: list[str] = []
    guards: list[Guard] = []
    links: dict[str, str] = {}

    @property
    def header_sets(self) -> set[str]:
        """All header sets without which it cannot be checked."""
        return {*self.headers, *(guard.headers for guard in self.guards if guard.headers)}

    @classmethod
    def union(cls, closures: Iterable[Closure]) -> Closure:
        """The closure of what was made of several results (an artifact of its units).

        Raises ChangedDuringBuild when they disagree on a file.
        """
        files: dict[str, str] = {}
        header_sets: set[str] = set()
        absent: set[str] = set()
        guards: list[Guard] = []
        links: dict[str, str] = {}
        for closure in closures:
            for known, found in ((files, closure.files), (links, closure.links)):
                for path, expected in found.items():
                    if known.setdefault(path, expected) != expected:
                        raise ChangedDuringBuild(path)
            header_sets.update(closure.headers)
            absent.update(closure.absent)
            guards += [guard for guard in closure.guards if guard not in guards]
        return cls(files, sorted(header_sets), sorted(absent), guards, links)


class Shelf(Protocol):
    """What closures need of the store."""

    @property
    def root(self) -> Path: ...
    def put_headers(self, payload: bytes) -> str: ...
    def get_headers(self, name: str) -> bytes | None: ...


class Closures:
    """Records closures and checks them. Thread-safe."""

    def __init__(self, store: Shelf, watch: HeaderWatch) -> None:
        self._store = store
        self._watch = watch
        self._unread: list[tuple[str, int, int]] = []  # headers of which only the time is known
        self._recorded: dict[str, None] = {}  # header sets of which all may be
        self._scanner = has_include.Scanner()
        self._contents = Contents()

    def record(
        self, paths: Iterable[str], toolchain_roots: Iterable[str], include_dirs: Sequence[str],
        started: Marker, *, cwd: str = "/", ignore: Iterable[str] = (), texts: Iterable[str] = (),
        absent: Iterable[str] = (), linked: Iterable[str] = (), seen: Seen | None = None,
    ) -> Closure:  # fmt: skip
        """The closure of a build that began at ``started`` and read ``paths``.

        ``include_dirs`` are the folders searched for headers, in their order, the compiler's own
        included. ``paths``, ``include_dirs`` and ``absent`` may be relative to ``cwd``. What lies
        under ``ignore`` or in the store itself (staging trees) is left out; ``texts`` are sources
        that lie there. Those of ``absent`` that are not there now must not appear. ``linked`` are
        folders whose headers a compiler names by where links lead. ``seen``: what was seen of files
        for other units of this build, all of which were compiled before.
        Raises ChangedDuringBuild, and OSError when the store cannot be written.
        """
        seen = Seen() if seen is None else seen
        toolchain = seen.roots(toolchain_roots)
        ignored = seen.roots([*ignore, str(self._store.root)])
        reading = Reading(started, toolchain, ignored, seen, self._watch)
        for path in dict.fromkeys(
            path if path.startswith("/") else os.path.join(cwd, path) for path in paths
        ):
            reading.add(path)
        searched = [os.path.join(cwd, path) for path in include_dirs]
        search = Search(
            [path for path in searched if not ignored.hold(path)], toolchain.hold, seen, started
        )
        try:
            wanted = (os.path.join(cwd, path) for path in absent)
            missing = search.missing(
                path for path in wanted if not ignored.hold(os.path.dirname(path))
            )
            # A linker asks nothing
            asked = self._asked(reading, search, texts) if searched else _Asked(set(), set())
            missing |= asked.missing
            files, sets = reading.files(), reading.sets()
            folders = [path for one in linked if not toolchain.hold(path := os.path.join(cwd, one))]
            links = following.followed(folders, files, reading.check_links)
            shadows = search.shadows(files, reading.theirs)
        except OSError as error:
            raise ChangedDuringBuild(
                str(error.filename), f"cannot be looked at ({error.strerror})"
            ) from error
        if started.clock_was_set():
            raise ChangedDuringBuild("the clock", "was set during the build")
        users, theirs = _sorted_by_owner(missing | shadows.absent, toolchain, seen)
        names = {*shadows.toolchain_names, *(name.partition("/")[0] for name in asked.of_toolchain)}
        found = (
            self._store.put_headers(header_sets.encode(names, sets, theirs))
            if sets or theirs
            else ""
        )
        if found:
            self._recorded[found] = None
        guards = (
            [Guard(shadows.folders, sorted(shadows.user_names), found)] if shadows.folders else []
        )
        return Closure(files, [found] if found else [], sorted(users), guards, links)

    def _asked(self, reading: Reading, search: Search, texts: Iterable[str]) -> _Asked:
        """What the files of a build ask for with ``__has_include``; what is there counts as read.
        Raises OSError."""
        by_users = {
            name
            for text in texts
            for name in has_include.asked(text.encode("utf-8", "surrogateescape"))
        }
        places = dict.fromkeys(os.path.dirname(path) for path in reading.files())
        there, missing = search.asked(by_users | reading.asked, places)
        of_toolchain: set[str] = set()
        for folder, entries in reading.sets().items():
            for name, size, mtime_ns in entries:
                of_toolchain |= self._scanner.asked(f"{folder}/{name}", size, mtime_ns)
        also_there, also_missing = search.asked(of_toolchain)
        for path in sorted((there | also_there).difference(reading.files())):
            reading.add(path)
        return _Asked(of_toolchain, missing | also_missing)

    def holds(self, closure: Closure) -> bool:
        """Whether a build now would read just what it read then."""
        return self.broken(closure) is None

    def broken(self, closure: Closure) -> str | None:
        """Why a build now would read something else than it read then; None when it would not."""
        for path, expected in closure.files.items():
            if not self._has(path, expected):
                return f"{path} {'has changed' if os.path.isfile(path) else 'is gone'}"
        for path in closure.absent:
            if os.path.lexists(path):
                return f"{path} has appeared, which is searched first"
        for path, expected in closure.links.items():
            if os.path.realpath(path) != expected:
                return f"{path} leads elsewhere"
        if not all(self._watch.holds(found) for found in closure.headers):
            return "a header of the toolchain or of torch has changed"
        if not self._guarded(closure):
            return "a header has appeared in a folder that is searched first"
        return None

    def paths(self, closure: Closure) -> list[str] | None:
        """All files that were read; None where what is known of the toolchain's is gone."""
        paths = list(closure.files)
        for name in closure.headers:
            if (found := header_sets.decoded(self._store.get_headers(name))) is None:
                return None
            for folder, entries in found.folders.items():
                paths += [f"{folder}/{name}" for name, _, _ in entries]
        return paths

    def _has(self, path: str, expected: str) -> bool:
        try:
            return self._contents.are(path, expected)
        except OSError:
            return False

    def learn(self, most: int | None = None, seconds: float = math.inf) -> None:
        """Read headers of what was recorded, at ``most`` so many of them and for so many seconds,
        so that it holds where they have other times. Called by one thread at a time."""
        until = time.monotonic() + seconds
        while self._recorded and (most is None or len(self._unread) < most):
            name, _ = self._recorded.popitem()
            found = header_sets.decoded(self._store.get_headers(name))
            for folder, entries in found.folders.items() if found is not None else ():
                self._unread += [(f"{folder}/{name}", size, at) for name, size, at in entries]
        for _ in range(len(self._unread) if most is None else min(most, len(self._unread))):
            if time.monotonic() > until:
                break
            with contextlib.suppress(OSError):  # it is gone
                self._watch.known.learn(*self._unread.pop())
        self._watch.known.save()

    def steady(self, closure: Closure, toolchain: Paths) -> frozenset[str] | None:
        """The user's files that are watched, if the closure will hold while no watch reports.
        None when it may not hold, or the toolchain's paths may lead elsewhere, although no
        watch reports anything and the user's files keep their content.

        These are headers. A source is read each time, as stock does; stock does not look at
        headers.
        """
        headers = frozenset(path for path in closure.files if path.endswith(_HEADERS))
        watched = (
            headers if headers and self._watch.steady((), Paths(headers)) else frozenset[str]()
        )
        folders = frozenset(folder for guard in closure.guards for folder in guard.folders)
        own = Paths(frozenset((*closure.absent, *closure.links)), listed=folders)
        return watched if self._watch.steady(closure.header_sets, toolchain, own) else None

    @property
    def page(self) -> Page:
        """Shows to clients whether what is steady has changed since."""
        return self._watch.page

    @property
    def descriptors(self) -> list[int]:
        """What a client needs to see that; nothing where it cannot."""
        return self._watch.descriptors

    def _guarded(self, closure: Closure) -> bool:
        listings: dict[str, list[str]] = {}
        for guard in closure.guards:
            names = self._watch.names(guard.headers) if guard.headers else frozenset[str]()
            if names is None or not guard.holds(names, listings):
                return False
        return True


class _Asked(NamedTuple):
    """Names that the toolchain's headers ask for, and the paths that must stay missing."""

    of_toolchain: set[str]
    missing: set[str]


def _sorted_by_owner(
    missing: Iterable[str], toolchain: Roots, seen: Seen
) -> tuple[list[str], dict[str, list[str]]]:
    """Missing paths in the user's folders, and names of those in the toolchain's, by folder."""
    users, theirs = [], dict[str, list[str]]()
    for path in missing:
        folder, name = os.path.split(path)
        if not toolchain.hold(folder):
            users.append(path)
            continue
        while not seen.asked(os.path.isdir, folder):
            folder, name = os.path.split(folder)
        theirs.setdefault(folder, []).append(name)
    return users, theirs
