"""One number that every client can read: while it stays the same, so do the daemon's checks.

A client that asks the same again could be answered from its own memory, if it knew that no header,
compiler or folder has changed. inotify knows, but the daemon reads its queue only when it is asked,
and asking takes longer than all else that the client has to do. So a client is handed two file
descriptors: this page, and the inotify instance, on which it only ever asks whether something is
waiting.

A change that was complete before a client looks has left an event in the queue. Either it is still
there, and the client sees that; or the daemon has taken it out, and has marked the page *before* it
did. The lowest bit of the number says that events are being read just now, and the others count
what they brought. One aligned word is written at once, so a client reads the old one or the new
one.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Iterator

_SEAL_FUTURE_WRITE = 0x10  # fcntl has it since Python 3.14
_WORD = struct.Struct("@Q")


class Page:
    """The number, in memory that can be shared. Thread-safe."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("warmcc-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._end = weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, mmap.PAGESIZE)
        self._memory = mmap.mmap(self.descriptor, mmap.PAGESIZE)
        self._seal()
        self._lock = threading.Lock()
        self._reading = 0
        self.count = 1  # 0 is said to a client that must not remember
        self._show()

    def _seal(self) -> None:
        """Seal the page: no client may shorten it, which would kill all readers, or write to it."""
        size = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        try:
            fcntl.fcntl(
                self.descriptor, fcntl.F_ADD_SEALS, size | _SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
            )
        except OSError:  # before Linux 5.1
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, size | fcntl.F_SEAL_SEAL)

    def close(self) -> None:
        """Let go of it; clients that have it see that everything changed."""
        self.changed()
        self._end()

    def changed(self) -> None:
        """What was checked until now has to be checked again."""
        with self._lock:
            self.count += 1
            self._show()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """While events are taken out of the queue, and until ``changed`` has been said of them."""
        self._begin(1)
        try:
            yield
        finally:
            self._begin(-1)

    def _begin(self, one: int) -> None:
        with self._lock:
            self._reading += one
            self._show()

    def _show(self) -> None:
        _WORD.pack_into(self._memory, 0, self.count << 1 | bool(self._reading))
