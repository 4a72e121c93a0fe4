"""``warmcc cache clear --all``: stop the daemon, and remove everything that it has written.

Only files that warmcc makes are removed (``warmcc.paths``); the folders themselves go if nothing
else is in them. The locks of the folders are held meanwhile, so that no daemon starts there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from warmcc import paths
from warmcc.client.cli.daemon import stop_running
from warmcc.errors import DaemonError, RequestError, VersionMismatch


@dataclass
class Cleared:
    """What was removed: paths, and the bytes of their files; ``kept``: files of other programs.
    ``stopped`` is the process of the daemon that ran."""

    stopped: int | None = None
    removed: list[str] = field(default_factory=list)
    bytes: int = 0
    kept: list[str] = field(default_factory=list)


def clear_all() -> Cleared:
    """Raises RequestError when a daemon runs that cannot be stopped, systemd would start it again,
    or a folder is not the user's."""
    done = Cleared()
    if (folder := paths.runtime_dir()).parent == paths.BOOTED:
        raise RequestError(
            "your daemon is a service of the system: nothing was removed\n"
            f"Run `sudo warmcc uninstall-service --system --for {folder.name}`, then remove "
            f"/var/cache/warmcc/{folder.name} and /var/lib/warmcc/{folder.name}."
        )
    try:
        done.stopped = stop_running()
    except VersionMismatch as error:
        raise RequestError(
            f"the running daemon cannot be stopped: {error}\n"
            "Stop it with its own version of warmcc, then retry."
        ) from None
    except DaemonError as error:
        raise RequestError(
            f"the running daemon cannot be stopped: {error}\nEnd its process, then retry."
        ) from None
    if is_listened_to(paths.socket_path()):
        raise RequestError(
            f"systemd listens on {paths.socket_path()} and would start the daemon again: nothing "
            "was removed\nRun `warmcc uninstall-service`, then retry."
        )
    with contextlib.ExitStack() as held:
        folders = {
            place: names
            for place, names in (
                (paths.cache_dir(), paths.CACHE_NAMES),
                (paths.state_dir(), paths.STATE_NAMES),
                (paths.runtime_dir(), paths.RUNTIME_NAMES),
            )
            if _is_there(place)
        }
        for lock in _locks():
            held.enter_context(_held(lock))
        for place, names in folders.items():
            _clear(place, names, done)
    return done


def is_listened_to(path: Path) -> bool:
    """Whether a process accepts connections on a socket, as the kernel lists it (unix(7)); asking
    by connecting would have systemd start a daemon."""
    accepts = 0x10000
    with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as file:
        for line in file:
            words = line.split()
            if len(words) == 8 and words[7] == os.fsencode(path) and int(words[3], 16) & accepts:
                return True
    return False


def _is_there(place: Path) -> bool:
    """Raises RequestError where the folder may be another user's."""
    try:
        found = place.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise RequestError(
            f"{place} is a symlink, or owned by another user: nothing was removed\n"
            "Remove it by hand."
        )
    return True


def _locks() -> list[Path]:
    """Those that daemons hold: of the socket's folder, the cache, and the places beside it."""
    cache = paths.cache_dir()
    return [paths.lock_path(), cache / paths.LOCK, *sorted(cache.glob(f"beside/*/{paths.LOCK}"))]


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Raises RequestError when a daemon holds it."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        holder = lock.read_text(encoding="utf-8", errors="replace").strip()
        raise RequestError(
            f"another daemon uses {lock.parent} ({holder}): nothing was removed\n"
            "Stop it where it runs, for example in the other container, then retry."
        ) from None
    finally:
        os.close(descriptor)


def _clear(place: Path, names: tuple[str, ...], done: Cleared) -> None:
    """Raises RequestError when something cannot be removed."""
    try:
        for path in sorted({path for name in names for path in place.glob(name)}):
            weight = _weight(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
            done.removed.append(str(path))
            done.bytes += weight
        if left := sorted(map(str, place.iterdir())):
            done.kept += left
        else:
            place.rmdir()
    except FileNotFoundError:
        pass  # the log's folder may lie in the cache
    except OSError as error:
        raise RequestError(f"{error.filename} cannot be removed: {error.strerror}") from None


def _weight(path: Path) -> int:
    found = 0
    for entry in [path, *path.rglob("*")]:
        with contextlib.suppress(OSError):
            state = entry.lstat()
            found += state.st_size if stat.S_ISREG(state.st_mode) else 0
    return found
