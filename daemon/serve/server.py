"""The daemon's socket: greet, check who asks, dispatch messages, and send heartbeats.

One ``_on_<message>`` method for each message of a client is the dispatch table. Answers go out
without waiting: a client that is gone (EHOSTUNREACH) or does not read (its queue is full) is
dropped, and its flights with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmcc import protocol
from warmcc.daemon.build.flight import Phase
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.remote.tier import Tier
from warmcc.daemon.serve.build_requests import Builds, Post
from warmcc.daemon.serve.door import Door
from warmcc.daemon.store import Store, describe
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.counters import Counters
from warmcc.protocol import DaemonMessage, Failed, Progress, Refused, Report, Welcome
from warmcc.version import __version__

log = logging.getLogger(__name__)


@dataclass
class Client:
    """A connection that has been greeted.
    ``open`` holds the requests that wait, with the time they came."""

    version: str
    pid: int
    open: dict[int, float] = field(default_factory=dict)


class Server:
    """Serves one socket until ``stopping`` is set."""

    def __init__(
        self, path: Path, make_builds: Callable[[Post], Builds], store: Store, closures: Closures,
        counters: Counters, status: Callable[[], dict[str, Any]], remote: Tier | None,
        background: Background, *, message_size: int,
    ) -> None:  # fmt: skip
        self._path = path
        self._store = store
        self._counters = counters
        self._status = status
        self._remote = remote
        self._background = background
        self._message_size = message_size
        self._door = Door(message_size, self._hear, self._lost, self._stranger)
        self._tasks: set[asyncio.Task[None]] = set()
        self.clients: dict[bytes, Client] = {}
        self._closures = closures
        self.builds = make_builds(self)
        self.stopping = asyncio.Event()
        self.last_message = time.monotonic()

    def bind(self, descriptor: int | None = None) -> None:
        """Open the socket, for its owner alone, or take over the service manager's.

        The caller holds the lock: binding takes the path from anyone. Raises OSError.
        """
        self._door.open(self._path, descriptor)

    async def serve(self) -> None:
        """Serve until stopped; then end the flights and answer their clients."""
        self._spawn(self._heartbeat())
        await self.stopping.wait()
        await self.builds.flights.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Let everybody go, once they have been told what was said."""
        await self._door.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hear(self, identity: bytes, frames: list[bytes]) -> None:
        if len(frames) != 2 or frames[0] != protocol.MAGIC:
            self._malformed(identity, f"expected the frames [{protocol.MAGIC.decode()}, message]")
            return
        try:
            message = protocol.decode_client_message(frames[1])
        except protocol.Undecodable as error:
            self._malformed(identity, f"not a message of this protocol: {error}")
            return
        self.last_message = time.monotonic()
        if identity not in self.clients and not isinstance(message, protocol.Hello):
            self.send(
                identity,
                Refused([protocol.PROTOCOL], __version__, "the first message must be hello"),
            )
            return
        try:
            getattr(self, f"_on_{type(message).__name__.lower()}")(identity, message)
        except Exception as error:  # whatever one client sends, the others are served
            log.exception("failed to handle a message")
            self._malformed(identity, f"internal error: {type(error).__name__}: {error}")

    def _stranger(self) -> None:
        self._counters.strangers += 1

    def _malformed(self, identity: bytes, reason: str) -> None:
        self._counters.malformed += 1
        log.warning("malformed message: %s", reason)
        self.send(identity, Refused([protocol.PROTOCOL], __version__, reason))

    def send(self, identity: bytes, message: DaemonMessage, *, last: bool = False) -> bool:
        """Send without waiting; False when the client is gone, which is then forgotten.
        ``last``: it is to go."""
        return self._door.send(identity, [protocol.MAGIC, protocol.encode(message)], last=last)

    def _lost(self, identity: bytes) -> None:
        self.clients.pop(identity, None)
        self._background.elsewhere(identity, builds=False)
        self._counters.cancelled += self.builds.flights.leave_all(identity)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(protocol.HEARTBEAT_SECONDS)
            phases = {
                waiter: flight
                for flight in self.builds.flights.by_key.values()
                for waiter in flight.waiters
            }
            now = time.monotonic()
            pids = {client.pid for client in self.clients.values()}
            gone = {pid for pid in pids if pid and not os.path.exists(f"/proc/{pid}")}
            for identity, client in list(self.clients.items()):
                if not client.open and client.pid in gone:
                    self._door.drop(identity)  # a child of it may hold the connection open
                for number, came in list(client.open.items()):
                    flight = phases.get((identity, number))
                    progress = Progress(number, Phase.QUEUED.value, now - came)
                    if flight is not None:
                        progress = Progress(
                            number, flight.phase.value, now - came, flight.done, flight.total
                        )
                    if not self.send(identity, progress):
                        break

    # ------------------------------------------------------------------ one method per message

    def _on_hello(self, identity: bytes, message: protocol.Hello) -> None:
        if protocol.PROTOCOL not in message.protocols:
            reason = (
                f"this daemon speaks protocol {protocol.PROTOCOL}, the client {message.protocols}"
            )
            self.send(identity, Refused([protocol.PROTOCOL], __version__, reason))
            return
        if identity not in self.clients and len(self.clients) >= self._door.clients:
            self._counters.turned_away += 1
            reason = (
                f"too many clients: {len(self.clients)} are connected, "
                "and the limit of open files allows no more"
            )
            self.send(identity, Refused([protocol.PROTOCOL], __version__, reason), last=True)
            return
        self._background.greeted()
        self._door.welcome(identity)
        self.clients[identity] = Client(message.version, self._door.pid(identity))
        capabilities = list(protocol.CAPABILITIES)
        self.send(
            identity,
            Welcome(protocol.PROTOCOL, __version__, os.getpid(), capabilities, self._message_size),
        )

    def _on_build(self, identity: bytes, message: protocol.Build | protocol.Kernel) -> None:
        self._counters.requests += 1
        self.clients[identity].open[message.id] = time.monotonic()
        self._spawn(self.builds.answer(identity, message))

    _on_kernel = _on_build

    def _on_cancel(self, identity: bytes, message: protocol.Cancel) -> None:
        self.clients[identity].open.pop(message.id, None)
        self._counters.cancelled += self.builds.flights.leave((identity, message.id))

    def _on_fallback(self, _identity: bytes, message: protocol.Fallback) -> None:
        self._counters.fallbacks[message.reason[:200]] += 1

    def _on_stock(self, identity: bytes, message: protocol.Stock) -> None:
        self._background.elsewhere(identity, builds=message.builds)

    def _on_watch(self, identity: bytes, message: protocol.Watch) -> None:
        """The answer brings the descriptors with it, or does not come: nothing waits for it."""
        found = self._closures.descriptors
        answer = protocol.Watching(message.id, protocol.mount_namespace())
        if found:
            self._door.hand_over(identity, [protocol.MAGIC, protocol.encode(answer)], found)

    def _on_status(self, identity: bytes, message: protocol.Status) -> None:
        self._spawn(self._report(identity, message.id, self._status))

    def _on_cache(self, identity: bytes, message: protocol.Cache) -> None:
        actions: dict[str, Callable[[], Any]] = {
            "ls": lambda: {"entries": self._store.entries()},
            "verify": self._store.verify,
            "prune": lambda: self._store.prune(message.limit),
            "clear": self._store.clear,
            "describe": lambda: describe.found(self._store, self._closures, message.wanted),
            "remote": lambda: {} if self._remote is None else self._remote.check(),
        }
        self.clients[identity].open[message.id] = time.monotonic()
        self._spawn(self._report(identity, message.id, actions[message.action]))

    def _on_stop(self, identity: bytes, message: protocol.Stop) -> None:
        self.send(identity, Report(message.id, {"pid": os.getpid()}))
        self.stopping.set()

    # ------------------------------------------------------------------ answers

    def pid(self, identity: bytes) -> int:
        client = self.clients.get(identity)
        return client.pid if client is not None else 0

    def waits(self, identity: bytes, number: int) -> bool:
        """Whether a client still wants the answer to a request."""
        client = self.clients.get(identity)
        return client is not None and number in client.open

    async def _report(
        self, identity: bytes, number: int, make: Callable[[], dict[str, Any]]
    ) -> None:
        try:
            data = await asyncio.to_thread(make)
        except OSError as error:
            said = Failed(number, "OSError", str(error), [], error.errno, error.filename)
            self._reply(identity, number, said)
            return
        self._reply(identity, number, Report(number, data))

    def answer(self, identity: bytes, number: int, message: DaemonMessage) -> None:
        """Answer a request for a build. Background work then stands still for a moment, but not
        after a hit: the caller loads it in less time than stopping that work takes."""
        self._reply(identity, number, message)
        if not (isinstance(message, protocol.Built) and message.outcome == "hit"):
            self._background.answered()

    def _reply(self, identity: bytes, number: int, message: DaemonMessage) -> None:
        client = self.clients.get(identity)
        if client is not None:
            client.open.pop(number, None)
            self.send(identity, message)
