"""Notice that files may have changed: by events from the kernel, else by polling.

An event says only that it is time to look. Folders are watched rather than files, so that a save by
renaming is seen, and the folders that symbolic links lead to as well. Folders may go away and come
back.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from typing import Any

LOOK_SECONDS = 1.0  # how often to look without an event
POLL_SECONDS = 0.25  # … where none are to be expected
_SETTLE_SECONDS = 0.002  # after a save that is complete: a closed or renamed file
_WRITING_SECONDS = 0.05  # after a write to a file that is still open
_REMOTE = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "virtiofs", "vboxsf", "sshfs",
}  # fmt: skip
_COMPLETE = {"closed", "moved", "created", "deleted"}


class Watcher:
    """Watches the folders of files.
    ``wait`` is for one thread, ``wake`` for any. Close it at the end."""

    def __init__(self) -> None:
        from watchdog.events import FileSystemEventHandler
        from watchdog.observers import Observer

        watcher = self

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: Any) -> None:
                watcher._noticed(event)

        self._handler = Handler()
        self._observer = Observer()
        self._observer.daemon = True
        self._observer.start()
        # Watched: by its inode, and watchdog's word for it
        self._folders: dict[str, tuple[int, Any]] = {}
        self._names: frozenset[str] = frozenset()
        self._remote = False
        self._changed = threading.Condition()
        self._look_at: float | None = None

    def watch(self, paths: Iterable[str]) -> None:
        """Watch these files and no others."""
        wanted = {os.path.abspath(path) for path in paths}
        wanted |= {os.path.realpath(path) for path in wanted}
        self._names = frozenset(wanted)
        folders = {os.path.dirname(path) for path in wanted}
        for folder in self._folders.keys() - folders:
            self._forget(folder)
        for folder in folders:
            self._follow(folder)
        self._remote = any(_is_remote(folder) for folder in folders)

    def _follow(self, folder: str) -> None:
        try:
            inode = os.stat(folder).st_ino
        except OSError:
            self._forget(folder)
            return
        if folder in self._folders and self._folders[folder][0] == inode:
            return
        self._forget(folder)
        with contextlib.suppress(
            OSError
        ):  # no more watches to be had: looking now and then will do
            self._folders[folder] = (inode, self._observer.schedule(self._handler, folder))

    def _forget(self, folder: str) -> None:
        _, watch = self._folders.pop(folder, (0, None))
        if watch is not None:
            with contextlib.suppress(KeyError, OSError):
                self._observer.unschedule(watch)

    def _noticed(self, event: Any) -> None:
        if event.event_type in ("opened", "closed_no_write") or (
            event.is_directory and event.event_type == "modified"
        ):
            return
        delay = _SETTLE_SECONDS if event.event_type in _COMPLETE else _WRITING_SECONDS
        with self._changed:
            at = time.monotonic() + delay
            self._look_at = (
                at
                if self._look_at is None or event.event_type in _COMPLETE
                else max(at, self._look_at)
            )
            self._changed.notify_all()

    def wake(self) -> None:
        """Have ``wait`` come back now."""
        with self._changed:
            self._look_at = 0.0
            self._changed.notify_all()

    def wait(self) -> None:
        """Come back when it is time to look at the files."""
        until = time.monotonic() + (POLL_SECONDS if self._remote else LOOK_SECONDS)
        with self._changed:
            while True:
                at = until if self._look_at is None else min(until, self._look_at)
                if (left := at - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            self._look_at = None
        for folder in {os.path.dirname(path) for path in self._names}:
            self._follow(folder)  # it may be another one by now

    def close(self) -> None:
        self.wake()
        self._observer.stop()


def _is_remote(folder: str) -> bool:
    """Whether others may write there without this machine's kernel knowing."""
    best, kind = "", ""
    with (
        contextlib.suppress(OSError),
        open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts,
    ):
        for row in mounts:
            words = row.split()
            place = (
                words[1].encode().decode("unicode_escape", "replace")
                if "\\" in words[1]
                else words[1]
            )
            if len(place) >= len(best) and f"{folder}/".startswith(place.rstrip("/") + "/"):
                best, kind = place, words[2]
    return kind in _REMOTE or kind.startswith("fuse.")
