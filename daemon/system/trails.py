"""Whether paths still lead where they led: every look-up on the way to them, watched.

What a hit depends on of the toolchain is checked by ``stat`` (programs, folders of headers, files
that must not appear). A *trail* is the same as a promise of inotify's: for each name on the way to
each path, links included, the folder in which it is looked up is watched for that name. While
nothing is reported, a second ``stat`` would say what the first one said. What a trail cannot
promise (a filesystem that others write to, a file mounted from elsewhere, a file of an overlay with
several names) it does not: then the client has to ask each time.

A mount can change what a path means without a word from inotify. Clients watch the list of mounts
themselves.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from warmcc.daemon.system.inotify import LOCAL_FILESYSTEMS, NAMES, Watches, opened

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIMIT = 256  # trails kept
_LINKS = 40  # on one path, as the kernel allows
_AGAIN_SECONDS = 60.0  # what could not be watched is not tried again before


class Paths(NamedTuple):
    """Paths to watch.
    ``files`` may be there or not; of ``folders`` only where they are, and of ``listed`` also
    what is in them."""

    files: frozenset[str]
    folders: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()


class _Unwatchable(Exception):
    """inotify would not report all that can happen to a path."""


class _Trail:
    def __init__(self) -> None:
        self.settled = False
        self.watches: list[int] = []
        self.not_before = 0.0  # monotonic seconds
        # Paths have most of their folders in common
        self.watched: set[tuple[str, str | None, bool]] = set()


class Trails:
    """Trails by the paths that they are for.
    Not thread-safe: its user holds the lock of the watches."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._trails: OrderedDict[Paths, _Trail] = OrderedDict()

    def __len__(self) -> int:
        return len(self._trails)

    def settled(self, paths: Paths) -> bool:
        """Whether nothing has happened to the paths since the first call, and would have been seen.

        Where it was not watched before, it is from now on, and the answer is no: what was looked at
        until now was not.
        """
        trail = self._trails.get(paths)
        if trail is None:
            trail = self._trails[paths] = _Trail()
            while len(self._trails) > _LIMIT:
                self._let_go(self._trails.popitem(last=False)[1])
        self._trails.move_to_end(paths)
        if trail.settled or time.monotonic() < trail.not_before:
            return trail.settled
        self._let_go(trail)
        try:
            self._watches.read_mounts()
            for path in (*paths.files, *paths.folders, *paths.listed):
                self._follow(path, trail, content=path in paths.files)
            for folder in paths.listed:
                with contextlib.suppress(
                    FileNotFoundError, NotADirectoryError
                ):  # that it appears is reported above it
                    self._watch(folder, trail, None)
            trail.settled = True
        except _Unwatchable:
            self._let_go(trail)
            trail.not_before = time.monotonic() + _AGAIN_SECONDS
        except OSError:
            self._let_go(trail)
        self._watches.page.changed()  # whoever looked before this cannot rely on it
        return False

    def _let_go(self, trail: _Trail) -> None:
        for watch in trail.watches:
            self._watches.remove(watch, trail)
        trail.watches, trail.settled, trail.watched = [], False, set()

    def _follow(self, path: str, trail: _Trail, *, content: bool) -> None:
        """Watch each folder, then look up the name in it. Raises OSError, _Unwatchable."""
        for folder, name, last in _lookups(path):
            self._watch(folder, trail, name, content=content and last)
            if content and last:
                self._follow_file(folder, name, trail)

    def _follow_file(self, folder: str, name: str, trail: _Trail) -> None:
        with opened(folder) as descriptor:
            try:
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return
            if stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode):
                return  # a link is followed, and a folder in place of a file has no content
            if (
                self._watches.filesystem(descriptor) == "overlay"
            ):  # it shows its layers' numbers, and copies on writing
                if found.st_nlink > 1:
                    raise _Unwatchable
            elif found.st_dev != os.fstat(descriptor).st_dev:
                raise _Unwatchable
            # Itself, too: it may have another name, or get one, and be written by way of that.
            self._add(f"/proc/self/fd/{descriptor}/{name}", trail, None)

    def _watch(
        self, folder: str, trail: _Trail, name: str | None, *, content: bool = False
    ) -> None:
        if (folder, name, content) in trail.watched:
            return
        trail.watched.add((folder, name, content))
        with opened(folder) as descriptor:
            if self._watches.filesystem(descriptor) not in LOCAL_FILESYSTEMS:
                raise _Unwatchable
            self._add(f"/proc/self/fd/{descriptor}", trail, name, content=content)

    def _add(self, path: str, trail: _Trail, name: str | None, *, content: bool = True) -> None:
        watch = self._watches.add(path, trail, name, **({} if content else {"mask": NAMES}))
        if watch is None:
            raise _Unwatchable
        trail.watches.append(watch)


def _lookups(path: str) -> Iterator[tuple[str, str, bool]]:
    """Each lookup on the way to ``path``: the folder, the name, and whether it is the last.
    Folders are paths without links. A name is looked up when the next one is asked for. Raises
    OSError, _Unwatchable."""
    if not path.startswith("/"):
        raise _Unwatchable
    current, left, links = "/", _names(path), 0
    while left:
        name = left.pop()
        if name == "..":
            current = os.path.dirname(current)
            continue
        yield current, name, not left
        current = os.path.join(current, name)
        target = None
        with contextlib.suppress(OSError):
            target = os.readlink(current)
        if target is not None:
            links += 1
            if links > _LINKS:
                raise _Unwatchable
            current = "/" if target.startswith("/") else os.path.dirname(current)
            left += _names(target)
        elif left and not os.path.isdir(current):
            return


def _names(path: str) -> list[str]:
    """The parts of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def candidates(words: Iterable[str], path: str) -> set[str]:
    """Where a command is looked for: on PATH, unless it names a folder itself."""
    folders = path.split(os.pathsep)
    return {
        place
        for word in words
        for place in ([word] if "/" in word else [f"{one}/{word}" for one in folders])
    }
