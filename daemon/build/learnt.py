"""Leave out, for a while, the accelerators that fail each time where stock succeeds."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass

from warmcc.daemon.system.bounds import forget_oldest

AGAIN_SECONDS = 600.0  # after this they are tried once more
TIMES = 2  # in a row
_MOST = 1000


@dataclass
class _Row:
    """Failures in a row, and when the last one was."""

    count: int = 0
    at: float = 0.0


class Learnt:
    """What was learnt in one daemon's life. A key says what failed, and where."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, _Row] = {}
        self._broken: dict[str, None] = {}

    def failed(self, key: Hashable) -> None:
        """It failed, and the way without it did not."""
        if key not in self._rows:
            forget_oldest(self._rows, _MOST)
        row = self._rows.setdefault(key, _Row())
        row.count, row.at = row.count + 1, time.monotonic()

    def worked(self, key: Hashable) -> None:
        self._rows.pop(key, None)

    def broken(self, key: str) -> None:
        """A unit that warmcc generated does not compile: no way with it is tried again."""
        forget_oldest(self._broken, _MOST)
        self._broken[key] = None

    def is_broken(self, key: str) -> bool:
        return key in self._broken

    def avoids(self, key: Hashable, times: int = TIMES) -> bool:
        """Whether it is not worth a try now."""
        row = self._rows.get(key)
        return row is not None and row.count >= times and time.monotonic() - row.at < AGAIN_SECONDS
