"""The CUDA units of a flight, on their way beside its other units. What compiles one of them is
``daemon/cuda``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

from warmcc.daemon.build.flight import Flight
from warmcc.daemon.build.work import Work
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.background import Step
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished

_AGAIN_SECONDS = 0.2  # where a signal could not be sent


class Compiling:
    """The CUDA units of one flight on their way, each with a permit of its share. One that fails
    has nothing new begin, and what runs goes on to its end, as with ninja. ``ended`` is how many
    have come to an end, ``chosen`` whether it is known how the first of them is compiled, and
    ``beside`` the compile of the C++ units, of which ``plain`` are the user's that have nothing
    warm, once ``plain_is_known``; when all of these ``plain_have_begun``, CUDA units that take less
    time than they begin. ``weight`` is how many units with all of torch's headers take as
    long as these do where nothing is warm."""

    def __init__(self, work: Work, flight: Flight, share: Share | None) -> None:
        self.work = work
        self.flight = flight
        self.offers: list[asyncio.Task[None]] = []
        self.ended = 0
        self.weight = 0.0
        self.chosen = asyncio.Event()
        self.share = share
        self.beside = Step()
        self.plain: list[Unit] = []
        self.plain_is_known = asyncio.Event()
        self.plain_have_begun = asyncio.Event()
        self._alone = 0  # units that are to be
        self._permits: Permits | None = None
        self._begun: set[asyncio.Task[Any]] = set()
        self._has_failed = False
        self._task: asyncio.Task[Finished] | None = None

    @property
    def failed(self) -> bool:
        """Whether it is known that they do not compile."""
        task = self._task
        return task is not None and task.done() and not task.cancelled() and task.result().code != 0

    def apart(self) -> AbstractAsyncContextManager[None]:
        """While a unit waits for warm state: its permit is others'."""
        if self.share is None or self._permits is None:
            return contextlib.nullcontext()
        return self._permits.apart(self.share)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """For the time of the block, the C++ units stand still: what the processors are for is one
        of these."""
        self._alone += 1
        try:
            with contextlib.suppress(OSError):  # no descriptor: they run on
                await asyncio.to_thread(self.beside.signal, stop=True)
            yield
        finally:
            self._alone -= 1
            while not self._alone:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self.beside.signal, stop=False)
                    break
                await asyncio.sleep(_AGAIN_SECONDS)

    def start(
        self,
        units: list[Unit],
        permits: Permits,
        compile_one: Callable[[Unit], Awaitable[Finished]],
        short: Container[Unit] = (),
    ) -> None:
        """Begin with all of them, but for ``short`` ones, which begin after ``plain``."""
        self._permits = permits

        async def in_turn(unit: Unit) -> Finished:
            if self.share is not None and unit in short:
                await self.plain_have_begun.wait()
            async with contextlib.nullcontext() if self.share is None else permits.hold(self.share):
                if self._has_failed:  # while this one waited for its turn
                    raise asyncio.CancelledError
                self._begun.add(cast("asyncio.Task[Any]", asyncio.current_task()))
                finished = await compile_one(unit)
                self._has_failed = self._has_failed or finished.code != 0 or finished.timed_out
                self.ended += 1
                self.chosen.set()
                return finished

        if units:
            self._task = asyncio.create_task(
                self._all([asyncio.create_task(in_turn(unit)) for unit in units])
            )

    async def _all(self, tasks: list[asyncio.Task[Finished]]) -> Finished:
        output, failure = "", None
        left = set(tasks)
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for finished in [task.result() for task in done if not task.cancelled()]:
                    output += finished.output
                    failure = failure or (
                        finished if finished.code != 0 or finished.timed_out else None
                    )
                if failure is not None:
                    for task in left - self._begun:
                        task.cancel()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return (
            Finished(0, output)
            if failure is None
            else Finished(failure.code or 1, output, failure.timed_out)
        )

    async def finished(self) -> Finished:
        """Wait for them; the text is what stock's build would print of them."""
        return Finished(0, "") if self._task is None else await asyncio.shield(self._task)

    async def close(self) -> None:
        """Kill whatever still runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, *self.offers, return_exceptions=True)


class CompilesCuda(Protocol):
    """What a build needs of ``daemon/cuda``."""

    def compiling(
        self, work: Work, flight: Flight, share: Share | None
    ) -> AbstractAsyncContextManager[Compiling]:
        """Start to compile the CUDA units that the store does not have; whatever still runs at the
        end is killed.
        """
        ...
