"""The remote store beside builds: asked after a miss in one's own store, and given what was built.

It is never in the way. A build waits for it a quarter of a second (setting ``remote_wait``), then
begins; whichever of the two has the result first ends the other. After three failures in a row it
is left alone for a minute. Results are given in the background, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from warmcc import status
from warmcc.daemon.build.flight import Answer, Flight
from warmcc.daemon.remote.breaker import Breaker
from warmcc.daemon.remote.exchange import Exchange, NotShared
from warmcc.daemon.remote.places import Trouble
from warmcc.daemon.store import Result
from warmcc.daemon.store.hits import Hits, built
from warmcc.daemon.system.bounds import Reasons
from warmcc.protocol import Built
from warmcc.request import Request

log = logging.getLogger(__name__)

LOOKUPS = 8  # at a time, further ones wait: those that hang hold no more threads
QUEUE = 256  # results that wait to be given
END_SECONDS = 3.0  # for what waits when the daemon ends
T = TypeVar("T")


class Unusable(Exception):
    """A remote store cannot be used until the settings are changed."""


class Tier:
    """One remote store. ``make`` opens it, in a thread, or raises Unusable. A build waits ``wait``
    seconds for it; nothing is given unless it ``writes``."""

    def __init__(
        self, url: str, make: Callable[[], Exchange], hits: Hits, *, wait: float, writes: bool
    ) -> None:
        self._url = url
        self._make = make
        self._making = threading.Lock()
        self._made: Exchange | None = None
        self._hits = hits
        self._wait = wait
        self._writes = writes
        self._refused = ""
        self._reading, self._writing = Breaker(), Breaker()
        self._slots = asyncio.Semaphore(LOOKUPS)
        self._waiting: deque[tuple[Request, str]] = deque()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._giving: asyncio.Task[None] | None = None
        self._found = self._missed = self._skipped = self._given = self._dropped = 0
        self._not_shared = 0
        self._not_found = Reasons()
        self._not_given = Reasons()

    def start(self) -> None:
        """Open it, so that the status says whether it can be used."""
        self._task(self._start())

    async def _start(self) -> None:
        with contextlib.suppress(Unusable):
            await in_thread(self._exchange)

    def _exchange(self) -> Exchange:
        """The opened store. Blocks. Raises Unusable."""
        with self._making:
            if self._refused:
                raise Unusable(self._refused)
            if self._made is None:
                try:
                    self._made = self._make()
                except Unusable as reason:
                    self._refused = str(reason)
                    log.warning("the remote store %s is not used: %s", self._url, reason)
                    raise
            return self._made

    # ------------------------------------------------------------------ reading

    async def first(
        self, request: Request, flight: Flight, build: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """The answer to a flight: the remote store's, if it comes first, or the build's."""
        landed = asyncio.Event()
        looking = self._task(self._look(request, flight.key, landed))
        try:
            answer = await self._race(looking, flight, build)
        finally:
            landed.set()
        if isinstance(answer, Built) and answer.outcome == "miss" and answer.kept:
            self._offer(request, flight.key)
        return answer

    async def _race(
        self, looking: asyncio.Future[tuple[Result, Path] | None], flight: Flight,
        build: Callable[[], Awaitable[Answer]],
    ) -> Answer:  # fmt: skip
        await asyncio.wait([looking], timeout=self._wait)
        if looking.done() and (found := looking.result()) is not None:
            return await self._use(found, flight)
        building = asyncio.ensure_future(build())
        both: list[asyncio.Future[Any]] = [looking, building]
        try:
            if not looking.done():
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not building.done() and looking.done() and (found := looking.result()) is not None:
                return await self._use(found, flight)
            return await building
        finally:
            if not building.done():
                building.cancel()
                await asyncio.gather(building, return_exceptions=True)

    async def _use(self, found: tuple[Result, Path], flight: Flight) -> Built:
        self._found += 1
        answer = built(*found, "hit", flight.started)
        answer.way = flight.way = f"from the remote store; {answer.way}"
        await asyncio.to_thread(self._hits.tell_what_was_read, answer, found[0])
        await self._hits.add(flight.key, *found, publish=flight.publish, paths=None)
        return answer

    async def _look(
        self, request: Request, key: str, landed: asyncio.Event
    ) -> tuple[Result, Path] | None:
        """What the remote store has; None where that is nothing. Once begun, it goes on after its
        flight has landed, so that a place that hangs is noticed."""
        if self._refused:
            return None
        if self._reading.rests:
            self._skipped += 1
            return None
        try:
            async with self._slots:
                if self._reading.rests or landed.is_set():
                    self._skipped += 1
                    return None
                found = await in_thread(lambda: self._exchange().take(request, key))
        except NotShared:
            self._not_shared += 1
            return None
        except Unusable:
            return None
        except Exception as error:
            self._failed(self._reading, self._not_found, "looked up in", request, error)
            return None
        self._reading.worked()
        self._missed += found is None
        return found

    # ------------------------------------------------------------------ writing

    def _offer(self, request: Request, key: str) -> None:
        """Give a result in the background; without room it is dropped, and counted."""
        if self._refused or not self._writes:
            return
        if self._writing.rests or len(self._waiting) >= QUEUE:
            self._dropped += 1
            return
        self._waiting.append((request, key))
        if self._giving is None or self._giving.done():
            self._giving = asyncio.create_task(self._give())

    async def _give(self) -> None:
        while self._waiting:
            request, key = self._waiting[0]
            try:
                self._given += await self._give_one(request, key)
            except NotShared:
                self._not_shared += 1
            except Unusable:
                self._dropped += 1
            except Exception as error:
                if self._failed(self._writing, self._not_given, "given to", request, error):
                    self._dropped += len(self._waiting) - 1
                    self._waiting = deque(list(self._waiting)[:1])
            else:
                self._writing.worked()
            self._waiting.popleft()

    async def _give_one(self, request: Request, key: str) -> bool:
        return await in_thread(lambda: self._exchange().give(request, key))

    async def close(self) -> None:
        """Give what waits, within a few seconds, and drop the rest."""
        if self._giving is not None and not self._giving.done():
            await asyncio.wait([self._giving], timeout=END_SECONDS)
            if self._waiting:
                self._dropped += len(self._waiting)
                log.warning(
                    "%d results were not given to the remote store: the daemon ends",
                    len(self._waiting),
                )
            self._tasks.add(self._giving)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------ telling

    def _failed(
        self, breaker: Breaker, reasons: Reasons, done: str, request: Request, error: Exception
    ) -> bool:
        """Count a failure; whether the remote store is left alone from now on."""
        reason = error.reason if isinstance(error, Trouble) else "internal error"
        reasons[reason] += 1
        text = f"{reason}: {error}"
        log.info("%s was not %s the remote store: %s", request.module_name, done, text)
        if not isinstance(error, (Trouble, OSError)):
            log.error("internal error with the remote store", exc_info=error)
        if reason == "not signed":  # which says nothing about the place
            breaker.worked()
            return False
        rests = breaker.failed(text)
        if rests:
            log.warning("the remote store is left alone for %.0f s: %s", breaker.rests, text)
        return rests

    def report(self) -> status.Remote:
        """What ``warmcc status`` shows."""
        resting = self._reading if self._reading.rests else self._writing
        return status.Remote(
            url=self._url, refused=self._refused, writes=self._writes, rests=resting.rests,
            reason=resting.reason if resting.rests else "", found=self._found,
            missed=self._missed, skipped=self._skipped, given=self._given,
            dropped=self._dropped, waiting=len(self._waiting), not_shared=self._not_shared,
            not_found=dict(self._not_found), not_given=dict(self._not_given),
        )  # fmt: skip

    def check(self) -> dict[str, Any]:
        """Try it now, for ``warmcc remote check``; ``problem`` is empty where it works. Blocks."""
        problem, started = "", time.monotonic()
        try:
            self._exchange().check(writes=self._writes)
        except Unusable as reason:
            problem = str(reason)
        except Trouble as trouble:
            problem = f"{trouble.reason}: {trouble}"
        return {
            "url": self._url, "writes": self._writes, "problem": problem,
            "seconds": time.monotonic() - started,
        }  # fmt: skip

    def _task(self, work: Awaitable[T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """The result of blocking work, in a thread that the daemon's end does not wait for.
    Raises what the work raises, RuntimeError where no thread can be started."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(change: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            change(value)

    def run() -> None:
        change: Callable[[Any], None] = done.set_result
        try:
            value: Any = work(*arguments)
        except Exception as error:
            change, value = done.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, change, value)

    threading.Thread(target=run, name="warmcc-remote", daemon=True).start()
    return await done
