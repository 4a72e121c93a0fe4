"""Who waits for which build.

Requests with one key share one flight (single flight); a flight whose last waiting client goes away
is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from warmcc.daemon.build.flight import Answer, Flight, Waiter
from warmcc.protocol import Declined


class Flights:
    """The flights by key.
    ``finish`` is called once for each, with its answer, None when it was cancelled."""

    def __init__(self, finish: Callable[[Flight, Answer | None], None]) -> None:
        self._finish = finish
        self.by_key: dict[str, Flight] = {}
        # Seconds of the last flights, without their waits
        self._took: deque[float] = deque(maxlen=20)

    def patience(self, permits: int) -> float:
        """Seconds until half of the flights will have landed, at the pace of the last ones."""
        pace = sum(self._took) / len(self._took) if self._took else 5.0
        return max(0.5, pace * len(self.by_key) / permits / 2)

    def join(self, key: str, waiter: Waiter, *, wants_output: bool) -> Flight | None:
        """Wait for the flight of this key; None when there is none."""
        flight = self.by_key.get(key)
        if flight is not None:
            flight.waiters[waiter] = wants_output
        return flight

    def start(self, flight: Flight, build: Callable[[Flight], Awaitable[Answer]]) -> None:
        self.by_key[flight.key] = flight
        flight.task = asyncio.create_task(self._fly(flight, build))

    async def _fly(self, flight: Flight, build: Callable[[Flight], Awaitable[Answer]]) -> None:
        try:
            answer = await build(flight)
        except asyncio.CancelledError:
            self._forget(flight)
            ending = Declined(0, "the daemon was stopped", expected=False)
            self._finish(flight, ending if flight.waiters else None)
            raise
        self._forget(flight)
        self._took.append(
            time.monotonic() - flight.started - flight.timeline.steps().get("wait", 0.0)
        )
        self._finish(flight, answer)

    def _forget(self, flight: Flight) -> None:
        # A cancelled flight may have been replaced by a new one of the same key already.
        if self.by_key.get(flight.key) is flight:
            del self.by_key[flight.key]

    def leave(self, waiter: Waiter) -> bool:
        """A client no longer waits; its flight is cancelled if nobody else does.
        True when it was cancelled."""
        for flight in list(self.by_key.values()):
            if (
                flight.waiters.pop(waiter, None) is not None
                and not flight.waiters
                and flight.task is not None
            ):
                self._forget(flight)
                flight.task.cancel()
                return True
        return False

    def leave_all(self, identity: bytes) -> int:
        """A client is gone. Gives the number of flights that were cancelled for it."""
        waiters = {w for flight in self.by_key.values() for w in flight.waiters if w[0] == identity}
        return sum(self.leave(waiter) for waiter in waiters)

    async def close(self) -> None:
        """Cancel everything and wait until it has ended."""
        tasks = [flight.task for flight in self.by_key.values() if flight.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
