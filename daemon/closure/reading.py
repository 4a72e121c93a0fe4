"""The files that a build read: the user's by content, the toolchain's by size and time."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from warmcc import digest
from warmcc.daemon.closure import has_include, header_sets
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.closure.marker import Marker, dated
from warmcc.daemon.closure.seen import Roots, Seen
from warmcc.daemon.system.inotify import opened


class ChangedDuringBuild(Exception):
    """A result that must not be stored, because ``path`` changed after the build began.
    Or that is unknown: it is not a regular file, a folder that cannot be listed, a name
    that msgpack cannot hold."""

    def __init__(self, path: str, reason: str = "changed during the build") -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


class Reading:
    """The files that one build read, sorted into the user's and the toolchain's, and read again."""

    def __init__(
        self, started: Marker, toolchain: Roots, ignored: Roots, seen: Seen, watch: HeaderWatch
    ) -> None:
        self._seen = seen
        self._watch = watch
        self.toolchain = toolchain
        self.ignored = ignored
        self.theirs: dict[str, list[str]] = {}
        self._started = started
        self.users: list[str] = []
        self.asked: set[str] = set()  # what the user's files ask for with __has_include
        self._files: dict[str, str] = {}
        self._sets: dict[str, list[header_sets.Entry]] = {}

    def add(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        if self.ignored.hold(folder):
            return
        if path != path.encode(errors="ignore").decode():
            raise ChangedDuringBuild(
                repr(path), "has a name that is not UTF-8, which msgpack cannot hold"
            )
        if self.toolchain.hold(folder):
            self.theirs.setdefault(folder, []).append(name)
        else:
            self.users.append(path)

    def files(self) -> dict[str, str]:
        """The user's, with their digests."""
        for path in self.users:
            if path in self._files:
                continue
            if path not in self._seen.files:
                self._seen.files[path] = self._read(path)
            self._files[path], asked = self._seen.files[path]
            self.asked |= asked
        return self._files

    def _read(self, path: str) -> tuple[str, frozenset[str]]:
        self.check_links(path)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise ChangedDuringBuild(path, "is not a regular file")
            content = Path(path).read_bytes()
            self._check(path, os.stat(path))  # after it was read
        except OSError as error:
            raise ChangedDuringBuild(path) from error
        return digest.of_bytes(content), has_include.asked(content)

    def sets(self) -> dict[str, list[header_sets.Entry]]:
        new = {
            folder: names
            for folder, names in self.theirs.items()
            if len(self._sets.get(folder, ())) != len(names)
        }
        unseen = {
            folder: names
            for folder, names in new.items()
            if (folder, tuple(names)) not in self._seen.entries
        }
        self._look(unseen)
        for folder, names in new.items():
            self._sets[folder] = self._seen.entries[folder, tuple(names)]
        return self._sets

    def _look(self, unseen: dict[str, list[str]]) -> None:
        """See headers of the toolchain: those that are watched are known already."""
        watched = self._watch.seen(unseen)
        sources = set(map(os.path.dirname, self._started.sources))  # looked at before, one by one
        for folder, names in unseen.items():
            found = watched.get(folder)
            if found is None or found.touched >= self._started.ns or folder in sources:
                entries = self._entries(folder, names)
            else:
                self.check_links(folder)
                entries = found.entries
            self._seen.entries[folder, tuple(names)] = entries

    def _entries(self, folder: str, names: list[str]) -> list[header_sets.Entry]:
        self.check_links(folder)
        found, path = [], folder
        try:
            with opened(folder) as descriptor:
                for name in names:
                    path = f"{folder}/{name}"
                    own, target = header_sets.look(descriptor, name)
                    if not stat.S_ISREG(target.st_mode):
                        raise ChangedDuringBuild(path, "is not a regular file")
                    self._check(path, own)
                    if target is not own:
                        self._check(path, target)
                    found.append(header_sets.Entry(name, target.st_size, target.st_mtime_ns))
        except OSError as error:
            raise ChangedDuringBuild(path) from error
        return found

    def _check(self, path: str, found: os.stat_result) -> None:
        if not self._started.precedes(path, found):
            raise ChangedDuringBuild(path)

    def check_links(self, path: str) -> None:
        """No link on the way to ``path`` may have been set during the build."""
        while path not in self._seen.links and path != "/":
            with contextlib.suppress(OSError):
                found = os.lstat(path)
                if stat.S_ISLNK(found.st_mode) and dated(found) >= self._started.ns:
                    raise ChangedDuringBuild(path)
            self._seen.links.add(path)
            path = os.path.dirname(path)
