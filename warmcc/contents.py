"""Files that are looked at again and again: a package has a hundred, each read at each hit."""

from __future__ import annotations

import os
import stat
import threading

from warmcc import digest

_LIMIT = 32 << 20


class Contents:
    """The bytes of files by their digest, ``limit`` bytes at most.

    Comparing takes half the time of a digest, and half the calls of the system, after each of which
    a thread waits for its turn among the others of its process. Thread-safe.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._known: dict[str, bytes] = {}
        self._keeping = threading.RLock()  # a signal's handler may make a call, too

    def are(self, path: str, known: str) -> bool:
        """Whether a file has the content with the digest ``known`` now.
        A path that is not a regular file has none. Raises OSError."""
        kept = self._known.get(known)
        # A pipe blocks who opens it
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if kept:
                return os.read(file, len(kept) + 1) == kept
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return False
            if found.st_size > self._limit:
                return digest.of_file(path) == known
            content = os.read(file, found.st_size + 1)
        finally:
            os.close(file)
        if digest.of_bytes(content) != known:
            return False
        self._keep(known, content)
        return True

    def _keep(self, known: str, content: bytes) -> None:
        with self._keeping:
            if self._size + len(content) > self._limit:
                self._known, self._size = {}, 0
            if known not in self._known:
                self._known[known] = content
                self._size += len(content)
