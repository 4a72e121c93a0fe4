"""Whether toolchain headers are what they were: checked in a millisecond.

Looking at 5,450 files takes 8 ms. ``HeaderWatch`` does that once, with inotify watches set before
it looks; after that a set holds as long as inotify reports nothing in its folders and each folder's
path still leads to the same inode. What inotify does not report of a file is made up for: links are
looked at every time, files with several names (hard links) have a watch of their own, and where
watching is not possible everything is looked at every time.

What cannot be seen until the set is looked at again (every ``max_age`` seconds, ten minutes unless
told otherwise):

- writing through a mapping, until the writer lets go of mapping and file;
- a second name (hard link) that a file got after it was looked at, in a folder that is not watched,
  and a write there;
- a single file mounted over a header, from the same filesystem;
- changes of an overlay's lower layer behind its back (the kernel calls that undefined).

What cannot be seen at all: a change that leaves both size and mtime as they were.

What is watched need not be looked at either when the next build records what it has read
(``seen``): with many builds at a time, these looks took more of the daemon's time than all else.

Where only the mtime is another one, as after a copy or in a layer of an image, a header that is
known to have had the same content is the same (``toolchain/known_contents.py``).
"""

from __future__ import annotations

import math
import os
import stat
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from warmcc.daemon.closure.header_sets import Entry, decoded, look
from warmcc.daemon.closure.marker import dated
from warmcc.daemon.system.inotify import LOCAL_FILESYSTEMS, Watches, opened
from warmcc.daemon.system.trails import Paths, Trails
from warmcc.daemon.toolchain.known_contents import KnownContents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from warmcc.daemon.system.page import Page


class _Folder:
    """The headers of one folder, and names that must not appear in it.
    All sets in memory with the same ones share it."""

    __slots__ = (
        "absent", "by_name", "entries", "identity", "loose", "path", "sets", "settled", "swept",
        "touched", "watches",
    )  # fmt: skip

    def __init__(
        self, path: str, entries: tuple[tuple[str, int, int], ...], absent: tuple[str, ...]
    ) -> None:
        self.path = path
        self.entries = entries
        self.absent = absent
        self.sets = 0  # how many have it
        self.settled = False  # looked at, watched, and nothing reported since
        self.identity = (0, 0)  # st_dev and st_ino when it was looked at
        self.swept = 0.0  # when, in monotonic seconds
        self.loose: list[tuple[str, int, int]] = []  # to be looked at every time
        self.touched: float = math.inf  # when one of them was last, by its dates
        self.by_name: dict[str, Entry] = {}  # once they were looked at
        self.watches: list[int] = []


class Seen(NamedTuple):
    """Headers as they are now, and the latest time at which one of these or of their neighbours
    can have been touched (``marker.dated``)."""

    entries: list[Entry]
    touched: float


class _Set(NamedTuple):
    names: frozenset[str]
    folders: list[_Folder]


class HeaderWatch:
    """Header sets in memory, and whether they hold. Thread-safe.

    ``load`` gives the payload for a digest, or None (``Store.get_headers``); ``known`` are contents
    of headers; ``limit`` is how many sets stay in memory; without ``watching`` every file is looked
    at in every call.
    """

    def __init__(
        self, load: Callable[[str], bytes | None], known: KnownContents | None = None, *,
        watching: bool = True, limit: int = 64, max_age: float = 600.0,
    ) -> None:  # fmt: skip
        self._load = load
        self.known = KnownContents() if known is None else known
        self._limit = limit
        self._max_age = max_age
        self._lock = threading.Lock()
        self._watches = Watches(watching)
        self._trails = Trails(self._watches)
        self._mounts_known = False
        self._sets: OrderedDict[str, _Set] = OrderedDict()
        self._folders: dict[
            tuple[str, tuple[tuple[str, int, int], ...], tuple[str, ...]], _Folder
        ] = {}
        self._by_path: dict[str, dict[_Folder, None]] = {}
        self._sweeps = 0

    def holds(self, digest: str) -> bool:
        """Whether every file of the set still has its size and mtime."""
        with self._lock:
            self._watches.drain()
            self._mounts_known = False
            found = self._get(digest)
            if found is None:
                return False
            oldest = time.monotonic() - self._max_age
            return all(self._folder_holds(folder, oldest) for folder in found.folders)

    def seen(self, wanted: Mapping[str, Sequence[str]]) -> dict[str, Seen]:
        """Headers of folders, by their names, of those folders that are known without a look."""
        found = {}
        oldest = time.monotonic() - self._max_age
        with self._lock:
            self._watches.drain()
            for path, names in wanted.items():
                asked = set(names)
                for folder in self._by_path.get(path, ()):
                    if folder.loose or not self._is_settled(folder, oldest):
                        continue
                    if folder.by_name.keys() >= asked:
                        entries = [folder.by_name[name] for name in names]
                        found[path] = Seen(entries, folder.touched)
                        break
        return found

    @staticmethod
    def _is_settled(folder: _Folder, oldest: float) -> bool:
        """Whether it was looked at, and nothing was reported since."""
        if not folder.settled or folder.swept < oldest:
            return False
        try:
            found = os.stat(folder.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == folder.identity

    def steady(self, digests: Iterable[str], *others: Paths) -> bool:
        """Whether the sets and all other paths were watched in every respect when last looked at.
        Where they are not, they are from now on, as far as that is possible."""
        with self._lock:
            self._watches.drain()
            trails = list(others)
            for digest in digests:
                found = self._get(digest)
                if found is None or not all(folder.settled for folder in found.folders):
                    return False
                folders = found.folders
                links = (
                    f"{folder.path}/{entry[0]}" for folder in folders for entry in folder.loose
                )
                trails.append(Paths(frozenset(links), frozenset(one.path for one in folders)))
            return not [paths for paths in trails if not self._trails.settled(paths)]

    @property
    def page(self) -> Page:
        """Shows to clients whether what was checked still holds."""
        return self._watches.page

    @property
    def descriptors(self) -> list[int]:
        """What a client needs to see that for itself: the page, and what is not yet read.
        Nothing without inotify."""
        waiting = self._watches.descriptor
        return [] if waiting is None else [self.page.descriptor, waiting]

    def names(self, digest: str) -> frozenset[str] | None:
        """The names by which the set's headers are found; None for a set that is not there."""
        with self._lock:
            found = self._get(digest)
            return None if found is None else found.names

    def status(self) -> dict[str, int | bool]:
        """What is in memory: ``sets``, ``folders``, ``watches``.
        ``sweeps`` counts the folders looked at so far; ``watching`` says whether inotify
        works."""
        with self._lock:
            return {
                "watching": self._watches.active,
                "sets": len(self._sets),
                "folders": len(self._folders),
                "watches": len(self._watches),
                "sweeps": self._sweeps,
            }

    def close(self) -> None:
        """Let go of all watches. ``holds`` works on, by looking."""
        with self._lock:
            self._watches.close()

    def _get(self, digest: str) -> _Set | None:
        found = self._sets.get(digest)
        if found is not None:
            self._sets.move_to_end(digest)
            return found
        read = decoded(self._load(digest))
        if read is None:
            return None
        folders = dict.fromkeys((*read.folders, *read.absent))
        found = _Set(
            frozenset(read.names),
            [
                self._shared(path, read.folders.get(path, []), read.absent.get(path, []))
                for path in folders
            ],
        )
        self._sets[digest] = found
        while len(self._sets) > self._limit:
            self._forget(self._sets.popitem(last=False)[1])
        return found

    def _shared(self, path: str, entries: list[tuple[str, int, int]], absent: list[str]) -> _Folder:
        key = (path, tuple(entries), tuple(absent))
        folder = self._folders.get(key)
        if folder is None:
            folder = self._folders[key] = _Folder(*key)
            self._by_path.setdefault(path, {})[folder] = None
        folder.sets += 1
        return folder

    def _forget(self, forgotten: _Set) -> None:
        for folder in forgotten.folders:
            folder.sets -= 1
            if not folder.sets:
                self._unwatch(folder)
                del self._folders[folder.path, folder.entries, folder.absent]
                del self._by_path[folder.path][folder]
                if not self._by_path[folder.path]:
                    del self._by_path[folder.path]

    def _unwatch(self, folder: _Folder) -> None:
        for watch in folder.watches:
            self._watches.remove(watch, folder)
        folder.watches = []
        folder.settled = False

    def _folder_holds(self, folder: _Folder, oldest: float) -> bool:
        try:
            if not self._is_settled(folder, oldest):
                return self._sweep(folder)
            if folder.loose:
                with opened(folder.path) as descriptor:
                    return all(
                        self._is(folder, look(descriptor, entry[0])[1], entry)
                        for entry in folder.loose
                    )
        except OSError:
            folder.settled = False
            return False
        return True

    def _sweep(self, folder: _Folder) -> bool:
        """Watch, then look: what changes in between is in the queue for the next call."""
        self._sweeps += 1
        self._unwatch(folder)
        swept = time.monotonic()
        with opened(folder.path) as descriptor:
            own = os.fstat(descriptor)
            filesystem = self._filesystem(descriptor)
            watch = None
            if filesystem in LOCAL_FILESYSTEMS:
                watch = self._watches.add(f"/proc/self/fd/{descriptor}", folder)
            if watch is not None:
                folder.watches.append(watch)
            folder.loose, folder.touched = [], 0.0
            listed = os.listdir(f"/proc/self/fd/{descriptor}") if folder.absent else []
            if not set(folder.absent).isdisjoint(listed):
                self._unwatch(folder)
                return False
            for entry in folder.entries:
                link = found = os.stat(entry[0], dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISLNK(link.st_mode):
                    found = os.stat(entry[0], dir_fd=descriptor)
                if not self._is(folder, found, entry):
                    self._unwatch(folder)
                    return False
                is_plain = stat.S_ISREG(found.st_mode) and found.st_mtime_ns == entry[2]
                folder.touched = max(folder.touched, dated(found) if is_plain else math.inf)
                # Overlays show their layers' numbers
                here = found.st_dev == own.st_dev or filesystem == "overlay"
                if watch is None or (link is found and found.st_nlink == 1 and here):
                    continue
                single = link is found and here and filesystem != "overlay"
                if not single or not self._watch_alone(folder, descriptor, entry):
                    folder.loose.append(entry)
        if not folder.by_name:
            folder.by_name = {entry[0]: Entry(*entry) for entry in folder.entries}
        folder.identity, folder.swept, folder.settled = (
            (own.st_dev, own.st_ino),
            swept,
            watch is not None,
        )
        return True

    def _watch_alone(self, folder: _Folder, descriptor: int, entry: tuple[str, int, int]) -> bool:
        """A watch on a file itself, for one with several names: a write may use another one.

        Not for an overlay, which gives such a file a new inode when it is written.
        """
        watch = self._watches.add(f"/proc/self/fd/{descriptor}/{entry[0]}", folder)
        if watch is None:
            return False
        folder.watches.append(watch)
        # Again, now that it is watched
        return self._is(folder, os.stat(entry[0], dir_fd=descriptor), entry)

    def _is(self, folder: _Folder, found: os.stat_result, entry: tuple[str, int, int]) -> bool:
        """Whether a header is what it was. Raises OSError."""
        name, size, mtime_ns = entry
        if found.st_size != size or found.st_mtime_ns == mtime_ns:
            return found.st_size == size
        return self.known.is_what_was(f"{folder.path}/{name}", size, mtime_ns)

    def _filesystem(self, descriptor: int) -> str:
        if not self._mounts_known:
            self._watches.read_mounts()
            self._mounts_known = True
        return self._watches.filesystem(descriptor)
