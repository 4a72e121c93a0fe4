"""Who waits for which build, and how many compilers run at a time.

A *flight* is a build under way. Requests with one key share one flight (single flight); a flight whose last waiting
client goes away is cancelled. *Permits* bound the compilers that run at once, by processors and by memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from warmcc.daemon import process
from warmcc.daemon.timeline import Timeline
from warmcc.protocol import Built, Declined, Failed

Answer = Built | Failed | Declined
QUIET_SECONDS = 1.0  # without a compiler for this long, nobody is waiting for one
PATIENCE_SECONDS = 60.0  # on a machine that never gets quiet, work in the background goes on after this
Waiter = tuple[bytes, int]  # a client's ZeroMQ identity and its number for the request


@dataclass(eq=False)
class Flight:
    """One build under way. ``printed`` is what it has printed so far, for clients that join late."""

    key: str
    name: str
    started: float = field(default_factory=time.monotonic)
    phase: str = "queued"
    done: int = 0
    total: int = 0
    waiters: dict[Waiter, bool] = field(default_factory=dict)  # → does it want the output?
    first: Waiter | None = None  # the one that it was started for
    client: int = 0  # the process id of that one
    publish: bool = False  # somebody who waits wants everybody to have it
    printed: list[str] = field(default_factory=list)
    unsent: list[str] = field(default_factory=list)  # what of it nobody was sent yet
    timeline: Timeline = field(default_factory=Timeline)
    way: str = ""
    stale: str = ""  # what had changed of known results
    inputs: dict[str, str] = field(default_factory=dict)  # the parts of its key, for reading
    on_output: Callable[[Flight, str], None] = lambda _flight, _text: None
    task: asyncio.Task[None] | None = None

    def output(self, text: str) -> None:
        self.printed.append(text)
        self.on_output(self, text)


class Permits:
    """At most ``limit`` compilers at a time; each also needs ``job_memory`` bytes to be free. Clients take turns, and
    what one client waits for is first come first served: many requests of one do not hold up the single one of another.

    One compiler may always run, whatever the memory, so that a small machine is slow and not stuck.
    """

    def __init__(self, limit: int, job_memory: int) -> None:
        self.limit = limit or process.processors()
        self.in_use = 0
        self._job_memory = job_memory
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}  # by client, in the order of their turns

    def resize(self, limit: int, job_memory: int) -> None:
        """Other limits from now on; what runs goes on."""
        self.limit = limit or process.processors()
        self._job_memory = job_memory
        self._wake()

    @property
    def queue_length(self) -> int:
        return sum(map(len, self._queues.values()))

    async def quiet(self) -> None:
        """Wait for a moment when work in the background takes no time from anybody: on two cores, a precompiled header
        made beside the request that asked for it made that request up to twice as slow."""
        patience = time.monotonic() + PATIENCE_SECONDS
        since = time.monotonic()
        while (now := time.monotonic()) < min(since + QUIET_SECONDS, patience):
            await asyncio.sleep(0.1)
            if self.in_use:
                since = now

    def _room(self) -> bool:
        if self.in_use == 0:
            return True
        return self.in_use < self.limit and process.available_memory() > self._job_memory

    @contextlib.asynccontextmanager
    async def hold(self, wanted: int, client: Hashable = None) -> AsyncIterator[int]:
        """Hold between one and ``wanted`` permits (as many as are free when the first one is); gives the number."""
        await self._first(client)
        held = 1
        try:
            while held < wanted and not self._queues and self._room():
                self.in_use += 1
                held += 1
            yield held
        finally:
            self.in_use -= held
            self._wake()

    async def _first(self, client: Hashable) -> None:
        if self._queues or not self._room():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queues.setdefault(client, deque()).append(turn)
            try:
                while not turn.done():
                    # Memory comes back without telling: look again every second.
                    await asyncio.wait([turn], timeout=1.0)
                    self._wake()
            except asyncio.CancelledError:
                if turn.done():
                    self.in_use -= 1
                else:
                    self._leave(client, turn)
                self._wake()
                raise
        else:
            self.in_use += 1

    def _wake(self) -> None:
        while self._queues and self._room():
            self.in_use += 1
            client = next(iter(self._queues))
            queue = self._queues.pop(client)
            queue.popleft().set_result(None)
            if queue:
                self._queues[client] = queue  # behind those of all others

    def _leave(self, client: Hashable, turn: asyncio.Future[None]) -> None:
        self._queues[client].remove(turn)
        if not self._queues[client]:
            del self._queues[client]


class Flights:
    """The flights by key. ``finish`` is called once for each, with its answer, None when it was cancelled."""

    def __init__(self, finish: Callable[[Flight, Answer | None], None]) -> None:
        self._finish = finish
        self.by_key: dict[str, Flight] = {}
        self._took: deque[float] = deque(maxlen=20)  # seconds of the last flights, without their waits

    def patience(self, permits: int) -> float:
        """Seconds after which half of what is in the air will have landed, at the pace of the last flights."""
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
        self._took.append(time.monotonic() - flight.started - flight.timeline.steps().get("wait", 0.0))
        self._finish(flight, answer)

    def _forget(self, flight: Flight) -> None:
        # A cancelled flight may have been replaced by a new one of the same key already.
        if self.by_key.get(flight.key) is flight:
            del self.by_key[flight.key]

    def leave(self, waiter: Waiter) -> bool:
        """A client no longer waits; its flight is cancelled if nobody else does. True when it was cancelled."""
        for flight in list(self.by_key.values()):
            if flight.waiters.pop(waiter, None) is not None and not flight.waiters and flight.task is not None:
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
