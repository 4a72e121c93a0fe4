"""One writer for each folder, by locks that lie where the data is.
Two containers or machines may share a cache without sharing the folder of a socket, and without
seeing each other's processes.

The kernel lets go of a lock (flock) with the process that holds it, so no stale one can exist.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from warmcc import paths
from warmcc.errors import DaemonError

log = logging.getLogger(__name__)

LOCK = "daemon.lock"
PATIENCE_SECONDS = 1.0  # for a daemon that is ending
_POLL_SECONDS = 0.02
_MOST = 64  # daemons beside the first one


@dataclass(frozen=True)
class Claim:
    """The folder that this daemon alone writes to.
    ``holder`` says who has the cache in whose place it is used; it is empty when this is the
    cache itself."""

    path: Path
    lock: int
    holder: str

    def is_lost(self) -> bool:
        """Whether the folder was removed, or another one put in its place."""
        try:
            return not os.path.samestat(os.fstat(self.lock), os.lstat(self.path / LOCK))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # not known: a file server that does not answer


def take_lock(path: Path, text: str) -> int | None:
    """Take the lock of a file, and write ``text`` into it; None when another process holds it.
    Returns the descriptor.

    Raises DaemonError where the file system has no locks, OSError.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{text}\n".encode())
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass  # it was removed in between, or replaced: the file that is there now counts
        except OSError as error:
            os.close(descriptor)
            raise DaemonError(
                f"{path} cannot be locked ({error.strerror}), and two daemons must not write to "
                "one folder\n"
                "Use a folder on another file system (WARMCC_CACHE_DIR, WARMCC_RUNTIME_DIR, "
                "shared_store)."
            ) from error
        os.close(descriptor)


def claim(cache: Path) -> Claim:
    """The cache, or a folder below it while another daemon writes to the cache.
    Raises DaemonError, OSError.

    Removes what daemons beside the first one left, when they are gone.
    """
    paths.private_dir(cache)
    text = f"process {os.getpid()} on {socket.gethostname()}, socket {paths.socket_path()}"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (lock := take_lock(cache / LOCK, text)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    beside = cache / "beside"
    found = (
        Claim(cache, lock, "")
        if lock is not None
        else _beside(paths.private_dir(beside), text, _holder(cache))
    )
    for left in beside.iterdir() if beside.is_dir() else ():
        if left != found.path:
            _remove_unheld(left)
    return found


def _holder(cache: Path) -> str:
    try:
        return (cache / LOCK).read_text(
            encoding="utf-8", errors="replace"
        ).strip() or "another daemon"
    except OSError:
        return "another daemon"


def _beside(folder: Path, text: str, holder: str) -> Claim:
    """The first place that nobody holds: a restarted daemon finds its earlier results."""
    for number in range(1, _MOST + 1):
        place = folder / str(number)
        try:
            if (lock := take_lock(paths.private_dir(place) / LOCK, text)) is not None:
                return Claim(place, lock, holder)
        except (
            FileNotFoundError,
            FileExistsError,
        ):  # the second is pathlib's, when it goes between two calls
            continue  # somebody is removing it
    raise DaemonError(
        f"{_MOST} daemons already write below {folder}\nSet WARMCC_CACHE_DIR to another folder."
    )


def _remove_unheld(place: Path) -> None:
    """Remove the folder of a daemon that is gone.
    Its lock is held meanwhile, so that nobody takes it half-way."""
    try:
        lock = take_lock(place / LOCK, "being removed")
    except FileNotFoundError:
        return  # somebody else was faster
    except (OSError, DaemonError) as error:
        log.warning("%s was not changed: %s", place, error)
        return
    if lock is not None:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)
