"""inotify, reduced to one promise: after ``drain()``, a changed owner is not ``settled``.
An owner has changed when any of its watches reported anything.

The kernel queues an event inside the system call that makes the change, so a change that was
complete before ``drain()`` was called is in the queue that ``drain()`` reads. Watches belong to
inodes: two owners that watch the same folder share one, and the last one to let go removes it.

A watch is refused (``add`` gives None) where events cannot be relied upon: on filesystems that
others may write without this kernel's knowledge, and when the user's limits on watches or instances
are reached. The caller then looks at the files themselves, every time.
"""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from collections.abc import Iterator
from typing import Protocol

from inotify_simple import INotify, flags

from warmcc.daemon.system.page import Page

# Filesystems on which every change is made through this kernel; the last two cannot change at all.
LOCAL_FILESYSTEMS = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs", "squashfs", "erofs")
)

# CLOSE_WRITE beside MODIFY, because writing through a mapping reports nothing until the file is let
# go.
NAMES = (
    flags.ATTRIB
    | flags.MOVED_FROM
    | flags.MOVED_TO
    | flags.CREATE
    | flags.DELETE
    | flags.DELETE_SELF
    | flags.MOVE_SELF
)
_MASK = NAMES | flags.MODIFY | flags.CLOSE_WRITE
_SHARE = 4  # at most one in so many of the watches that the user may have: editors want some too


class Owner(Protocol):
    """What a watch is for. ``settled`` is set to False when the watch reports anything."""

    settled: bool


@contextlib.contextmanager
def opened(folder: str) -> Iterator[int]:
    """A descriptor that stands for ``folder`` whatever happens to its path. Raises OSError."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Watches:
    """The watches of one process.
    Not thread-safe: its user holds a lock. ``page`` shows what they report."""

    def __init__(self, enabled: bool = True) -> None:
        self._inotify: INotify | None = None
        # With the names that matter; None: all
        self._owners: dict[int, dict[Owner, set[str] | None]] = {}
        self.page = Page()
        self._mounts: dict[str, str] = {}
        self._mounting = select.poll()  # reports once, when a file system was mounted or unmounted
        self.limit = _watch_limit() // _SHARE
        if enabled:
            with contextlib.suppress(OSError):  # the limit of instances: work without
                mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
                self._end = weakref.finalize(self, os.close, mounts)
                self._mounting.register(mounts, 0)
                self._inotify = INotify()

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def active(self) -> bool:
        return self._inotify is not None

    @property
    def descriptor(self) -> int | None:
        """Has something to read when something was reported that ``drain`` has not seen."""
        return None if self._inotify is None else self._inotify.fileno()

    def add(
        self, path: str, owner: Owner, name: str | None = None, mask: int = _MASK
    ) -> int | None:
        """Watch the inode that ``path`` names now; None when that is not possible.
        With a ``name``, what is reported of other names in it does not matter to this
        owner."""
        if self._inotify is None or len(self._owners) >= self.limit:
            return None
        try:
            watch = int(self._inotify.add_watch(path, mask | flags.MASK_ADD))
        except OSError:
            return None
        owners = self._owners.setdefault(watch, {})
        names = owners.setdefault(owner, set())
        if name is None:
            owners[owner] = None
        elif names is not None:
            names.add(name)
        return watch

    def remove(self, watch: int, owner: Owner) -> None:
        owners = self._owners.get(watch)
        if owners is None or owner not in owners:
            return
        del owners[owner]
        self.page.changed()
        if not owners:
            del self._owners[watch]
            if self._inotify is not None:
                with contextlib.suppress(OSError):  # its inode went away; IGNORED is in the queue
                    self._inotify.rm_watch(watch)

    def drain(self) -> None:
        """Read all that was reported so far."""
        if self._inotify is None:
            return
        with self.page.reading():
            if self._mounting.poll(0):  # paths may lead elsewhere without an event
                for owners in self._owners.values():
                    self._unsettle(owners, "")
            for event in self._inotify.read(timeout=0):
                if event.mask & flags.Q_OVERFLOW:
                    for owners in self._owners.values():
                        self._unsettle(owners, "")
                elif (owners_of_it := self._owners.get(event.wd)) is not None:
                    self._unsettle(owners_of_it, event.name)
                    if event.mask & flags.IGNORED:  # the kernel dropped the watch with its inode
                        del self._owners[event.wd]

    def _unsettle(self, owners: dict[Owner, set[str] | None], name: str) -> None:
        """Tell the owners of a watch what it reported; without a ``name``, of itself."""
        for owner, names in owners.items():
            if names is None or not name or name in names:
                owner.settled = False
                self.page.changed()

    def filesystem(self, descriptor: int) -> str:
        """Type of the filesystem that an open file lies on, '' when unknown.

        By mount id, and not by ``st_dev``: subvolumes of btrfs have device numbers that mountinfo
        does not list.
        """
        try:
            with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
                fields = dict(line.split(":", 1) for line in file if ":" in line)
            return self._mounts.get(fields["mnt_id"].strip(), "")
        except (OSError, KeyError):
            return ""

    def read_mounts(self) -> None:
        """Reread the list of mounts: their ids are used again after an unmount."""
        self._mounts.clear()
        with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as file:
            for line in file:
                before, _, after = line.partition(b" - ")
                self._mounts[before.split(b" ", 1)[0].decode()] = os.fsdecode(
                    after.split(b" ", 1)[0]
                )

    def close(self) -> None:
        for owners in self._owners.values():
            self._unsettle(owners, "")
        self._owners.clear()
        self.page.close()
        if self._inotify is not None:
            self._end()
            self._inotify.close()
            self._inotify = None


def _watch_limit() -> int:
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 8192
