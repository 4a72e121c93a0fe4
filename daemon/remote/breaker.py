"""A breaker: what fails again and again is left alone for a while."""

from __future__ import annotations

import time

FAILURES = 3  # one after the other
REST_SECONDS = 60.0


class Breaker:
    """Of one kind of transfer. After its rest one more failure is enough."""

    def __init__(self) -> None:
        self._row = 0
        self._until = 0.0
        self.reason = ""

    @property
    def rests(self) -> float:
        """Seconds until the next transfer is tried; 0: it may be tried."""
        return max(0.0, self._until - time.monotonic())

    def worked(self) -> None:
        self._row, self._until, self.reason = 0, 0.0, ""

    def failed(self, reason: str) -> bool:
        """Note a failure; whether a rest begins."""
        self._row += 1
        self.reason = reason
        if self._row < FAILURES:
            return False
        self._until = time.monotonic() + REST_SECONDS
        return True
