"""What files contained, by their size and times: so that a cache goes on to serve where its files
have other times, as in a layer of an image, or after a copy.

Headers are known by size and time alone (``closure/header_sets.py``). Where only the time is
another one, their content tells; it is read once, and remembered for the time that it has now.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import msgspec

from warmcc import digest

_PATHS = 100_000  # what is known longest is forgotten
_TIMES = 4  # of one path
_SETTLED_NS = 2_000_000_000  # a file that changed later may change again within the same tick


class Look(msgspec.Struct, frozen=True, array_like=True):
    """A file as it once was: bytes, nanoseconds, nanoseconds, inode, and SHA-256."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    sha256: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, list[Look]]).decode


class KnownContents:
    """Of one daemon. ``file`` keeps them; None: they are kept in memory alone. Thread-safe."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._known: dict[str, list[Look]] | None = None
        self._changed = False

    def digest(self, path: str) -> str:
        """The SHA-256 of a file's content, which is read where the file is not known as it is.
        Raises OSError."""
        found = os.stat(path)
        for look in self._looks(path):
            if (look.size, look.mtime_ns, look.ctime_ns, look.inode) == _times(found):
                return look.sha256
        return self._read(path)

    def is_what_was(self, path: str, size: int, mtime_ns: int) -> bool:
        """Whether a file has the content that it had with this size and time, as far as that is
        known. Raises OSError."""
        looks = self._looks(path)
        had = {one.sha256 for one in looks if (one.size, one.mtime_ns) == (size, mtime_ns)}
        return len(had) == 1 and self.digest(path) in had

    def learn(self, path: str, size: int, mtime_ns: int) -> None:
        """Know the content of a file that has this size and time now. Raises OSError."""
        known = [(look.size, look.mtime_ns) for look in self._looks(path)]
        if (size, mtime_ns) in known:
            return
        found = os.stat(path)
        if (found.st_size, found.st_mtime_ns) == (size, mtime_ns):
            self._read(path)

    def save(self) -> None:
        """Keep what is known. Where nothing can be written, the next daemon reads files again."""
        with self._lock:
            if self._file is None or not self._changed or self._known is None:
                return
            payload, self._changed = _encode(self._known), False
        made = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            try:
                made.write_bytes(payload)
                made.replace(self._file)
            finally:
                made.unlink(missing_ok=True)

    def _read(self, path: str) -> str:
        before = os.stat(path)
        found = digest.of_file(path)
        after = os.stat(path)
        if _times(before) == _times(after) and time.time_ns() - after.st_ctime_ns > _SETTLED_NS:
            self._keep(path, Look(*_times(after), found))
        return found

    def _keep(self, path: str, look: Look) -> None:
        with self._lock:
            known = self._loaded()
            looks = known.pop(path, [])
            known[path] = [*looks, look][-_TIMES:]
            while len(known) > _PATHS:
                del known[next(iter(known))]
            self._changed = True

    def _looks(self, path: str) -> list[Look]:
        with self._lock:
            return self._loaded().get(path, [])

    def _loaded(self) -> dict[str, list[Look]]:
        if self._known is None:
            self._known = {}
            if self._file is not None:
                with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
                    self._known = _decode(self._file.read_bytes())
        return self._known


def _times(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
