"""Stock's ``lock`` file in a build directory: the lock of a dead process is not waited for.

Up to torch 2.14 stock takes the lock by creating the file, keeps it open while it builds, and
deletes it. The second process waits until the file is gone, forever if need be. While warmcc
calls stock, stock's class is replaced by one that waits for living processes only.

What it cannot see: a holder on another machine (a build directory on NFS), in another container, or
of another user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from warmcc.client.notices import warn_once
from warmcc.errors import WarmccWarning

_POLL_SECONDS = 0.1
# Stock closes the file just before it deletes it: only a lock that nobody had open at two looks is
# a dead one's.
_SECOND_LOOK_SECONDS = 0.5

_patching = threading.Lock()
_users = 0
_stocks_own: Any = None


@contextlib.contextmanager
def patient(extension: Any) -> Iterator[None]:
    """While the block runs, torch's cpp_extension (``extension``) ignores locks of the dead."""
    global _users, _stocks_own
    if getattr(extension, "FileBaton", None) is None:
        yield  # newer torches lock the file itself, and the kernel lets go of that with its process
        return
    with _patching:
        if _users == 0:
            _stocks_own = extension.FileBaton
            extension.FileBaton = _patient_kind(_stocks_own)
        _users += 1
    try:
        yield
    finally:
        with _patching:
            _users -= 1
            if _users == 0:
                extension.FileBaton = _stocks_own


def _patient_kind(stocks_own: Any) -> Any:
    class PatientBaton(stocks_own):  # type: ignore[misc]
        """Takes the lock, where stock would wait and then load what it did not build."""

        def try_acquire(self) -> bool:
            while not super().try_acquire():
                remove_if_stale(self.lock_file_path)
                time.sleep(_POLL_SECONDS)
            return True

    return PatientBaton


def remove_if_stale(path: str) -> bool:
    """Remove a lock file of this user's that no process has open; True when it was removed.

    Processes of warmcc take turns in this by a lock on the folder, so that none removes a lock that
    was just taken.
    """
    if not _abandoned(path):
        return False
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        seen = _identity(path)
        if seen is None or not _abandoned(path):
            return False
        time.sleep(_SECOND_LOOK_SECONDS)
        if _identity(path) != seen or not _abandoned(path):
            return False
        os.unlink(path)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    warn_once(f"removed {path}, which a process that has ended left behind", WarmccWarning)
    return True


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _abandoned(path: str) -> bool:
    """Whether the file exists, is this user's, and no process of this user has it open."""
    try:
        wanted = os.stat(path)
    except FileNotFoundError:
        return False
    if wanted.st_uid != os.getuid():
        return False  # its owner's open files cannot be seen
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    found = entry.stat()
                    if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                        return False
    return True
