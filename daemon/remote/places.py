"""Where a remote store is: a place keeps bytes under names. Its URL says which kind it is."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

SILENT_SECONDS = 5.0  # without a byte from a server
WHOLE_SECONDS = 60.0  # of one transfer
_OLD_SECONDS = 86400.0  # of a file that a writer has left unfinished
_LATE = "the server does not answer in time"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Reason = Literal[
    "timed out", "unreachable", "denied", "damaged", "not signed", "wrong answer", "full",
    "not supported",
]  # fmt: skip


class Trouble(Exception):
    """A place did not do what it should. ``reason`` is what the status counts."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason: Reason = reason


class Place(Protocol):
    """All methods block, for a limited time, and raise Trouble. Thread-safe."""

    def get(self, name: str, limit: int) -> bytes | None:
        """What is there under a name, ``limit`` bytes at most; None where there is nothing."""

    def put(self, name: str, data: bytes) -> None: ...
    def delete(self, name: str) -> None: ...


def opened(url: str, *, signed: bool) -> Place:
    """The place of a URL. ``signed``: what is read from it must be signed. Raises Trouble."""
    scheme, mark, rest = url.partition("://")
    scheme = scheme.lower()
    if not mark or scheme == "file":
        return Folder(rest if mark else url, signed=signed)
    if scheme in ("http", "https"):
        from warmcc.daemon.remote.web import Web

        return Web(url)
    if scheme in ("redis", "rediss"):
        from warmcc.daemon.remote.redis import Redis

        return Redis(url)
    from warmcc.daemon.remote.filesystems import Filesystem

    return Filesystem(url)


@contextlib.contextmanager
def within(seconds: float, end: Callable[[], object]) -> Iterator[None]:
    """Call ``end``, which makes a transfer fail, if the block takes longer.
    Raises Trouble for what goes wrong with a connection."""
    late = threading.Event()

    def ended() -> None:
        late.set()
        with contextlib.suppress(OSError):  # it has ended
            end()

    timer = threading.Timer(seconds, ended)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, Trouble) as error:
        if late.is_set() or isinstance(error, TimeoutError):
            raise Trouble("timed out", _LATE) from None
        if isinstance(error, Trouble):
            raise
        raise Trouble("unreachable", error.strerror or str(error) or type(error).__name__) from None
    finally:
        timer.cancel()
    if late.is_set():  # what was read so far looks like all of it
        raise Trouble("timed out", _LATE)


class Folder:
    """A folder, which other machines may have as well (NFS). Its files have its rights."""

    def __init__(self, root: str, *, signed: bool) -> None:
        if not os.path.isabs(root):
            raise Trouble("not supported", f"{root!r} is neither a URL nor an absolute path")
        self._root = os.path.realpath(root)
        with contextlib.suppress(OSError):  # what cannot be made now is told when it is used
            os.makedirs(self._root, 0o700, exist_ok=True)
        if not signed and (reason := _distrust(self._root)):
            raise Trouble(
                "denied", f"{reason}: what others put there would run as you; set bundle_trust, or "
                "use a folder that they cannot write to",
            )  # fmt: skip
        self._remove_old()

    def get(self, name: str, limit: int) -> bytes | None:
        path = f"{self._root}/{name}"
        try:
            # A pipe blocks who opens it
            number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(number, "rb") as file:
                if not stat.S_ISREG(os.fstat(number).st_mode):
                    raise Trouble("damaged", f"{path} is not a regular file")
                data = file.read(limit + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _trouble(error) from None
        if len(data) > limit:
            raise Trouble("damaged", f"{path} is too large")
        return data

    def put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        draft = f"{self._root}/parts/{secrets.token_hex(16)}"
        try:
            mode = self._make("parts") & 0o666
            self._make(os.path.dirname(name))
            try:
                with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                    out.write(data)
                    os.fchmod(out.fileno(), mode)
                os.rename(draft, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft)
                raise
        except OSError as error:
            raise _trouble(error) from None

    def delete(self, name: str) -> None:
        try:
            os.unlink(f"{self._root}/{name}")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _trouble(error) from None

    def _make(self, below: str) -> int:
        """Make a folder below the root, and the root; give the root's mode. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            os.makedirs(self._root, 0o700)
        mode, path = stat.S_IMODE(os.stat(self._root).st_mode), self._root
        for part in below.split("/"):
            path = f"{path}/{part}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                os.chmod(path, mode)
        return mode

    def _remove_old(self) -> None:
        """What a writer that was killed has left."""
        with contextlib.suppress(OSError), os.scandir(f"{self._root}/parts") as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _OLD_SECONDS:
                    os.unlink(entry.path)


def _trouble(error: OSError) -> Trouble:
    text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if isinstance(error, PermissionError):
        return Trouble("denied", text)
    return Trouble("full" if error.errno in _FULL else "unreachable", text)


def _distrust(root: str) -> str:
    """Why users other than those of its group may write to a folder, or may have made it; empty
    where they may not."""
    path, owner = root, os.getuid()
    while True:
        with contextlib.suppress(FileNotFoundError):
            try:
                found = os.stat(path)
            except PermissionError:
                return ""  # the first access says so
            if found.st_mode & 0o002:
                if not found.st_mode & stat.S_ISVTX or path == root:
                    return f"{path} can be written by all users"
                if owner not in (0, os.getuid()):
                    return f"{path} can be written by all users, and uid {owner} made {root} there"
            owner = found.st_uid
        if path == "/":
            return ""
        path = os.path.dirname(path)
