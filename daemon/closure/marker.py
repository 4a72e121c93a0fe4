"""When a build began: what a file must be older than to have been read as it is now.

Files are dated by the clock of the wall, which can be set. A marker therefore also holds how far
that clock is from one that cannot be set; when the two have moved against each other since, no date
tells anything.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

_SECOND = 1_000_000_000
# Seconds that a build waits for the clock to pass its sources; a tick is at most 10 ms
_PATIENCE = 0.05
# More than reading two clocks one after the other can make; both are slewed alike
_DRIFT_NS = 10_000_000


class Marker(msgspec.Struct, frozen=True):
    """When a build began, by the filesystem's clock in nanoseconds, and its sources' state.

    ``offset`` is how many nanoseconds the clock of the wall was ahead of the time since boot.
    """

    ns: int
    sources: dict[str, tuple[int, int, int, int]] = {}
    offset: int = msgspec.field(default_factory=lambda: _offset())

    @classmethod
    def take(cls, folder: Path | str, sources: Iterable[str] = ()) -> Marker:
        """Take the time from a new file in ``folder`` (the staging tree). Raises OSError.

        The kernel dates files with a clock that ticks every few milliseconds, so a source written
        just now may bear the very time of the marker, and would seem to have changed during the
        build: wait until the clock is past it.
        """
        offset = _offset()
        looks = {path: _look(path) for path in sources}
        newest = max((dated(found) for found in looks.values() if found is not None), default=0)
        deadline = time.monotonic() + _PATIENCE
        while (now := _clock(folder)) <= newest and time.monotonic() < deadline:
            time.sleep(0.001)
        return cls(
            now,
            {path: _identity(found) for path, found in looks.items() if found is not None},
            offset,
        )

    def precedes(self, path: str, found: os.stat_result) -> bool:
        """Whether the file has not been touched since."""
        return dated(found) < self.ns and self.sources.get(path) in (None, _identity(found))

    def clock_was_set(self) -> bool:
        """Whether the clock by which files are dated has been set since.
        One that was set back and forth again by the same amount is not noticed."""
        return abs(_offset() - self.offset) > _DRIFT_NS


def _look(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def dated(found: os.stat_result) -> int:
    """The latest time at which the file can have been touched, by its own dates."""
    touched = found.st_ctime_ns
    if touched % _SECOND == 0:  # a filesystem that keeps whole seconds
        touched += _SECOND - 1
    return max(touched, found.st_mtime_ns)


def _clock(folder: Path | str) -> int:
    path = os.path.join(folder, f".marker-{secrets.token_hex(8)}")
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)
        os.unlink(path)


def _offset() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
