"""Background work (PCHs, fork servers, samples), which gives way to requested builds.

It begins when the machine is quiet, at the lowest priority, and is stopped while builds use more of
the processors than it may share with them, and for a moment after each build: on two cores, a
precompiled header made beside a build made that build up to twice as slow, by the memory's
bandwidth alone. Only what calls have missed more than once goes on beside builds that leave half of
the processors free: the next call gains by it. On a machine that never gets quiet it goes on for a
slice of time now and then, so that it is finished in the end. A build by stock torch in a client's
own process counts as one that uses them all. What a build waits for does not give way; but it does
while a build that no longer waits has a compiler tell (see ``Background.alone``). And it stands
still for a moment when a client has come.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

from warmcc.daemon.system import reaper, resources
from warmcc.daemon.system.permits import Permits, Turns

QUIET_SECONDS = 1.0  # without a step for this long, nobody is waiting for one
PATIENCE_SECONDS = 60.0  # on a machine that never gets quiet, work goes on after this,
SLICE_SECONDS = 5.0  # for this long
_SHARED = 4  # one step of so many may run beside it,
_BEGINS = 8  # and one of so many when it begins: none on few processors
_BESIDE = 8  # of so many processors one is for it then: they share caches and memory
_FREE = 2  # one of so many: then what calls miss
_REPEATED = 2  # times may run as well
_HASTY = 2  # steps of a build that one which a build waits for counts as
_ROOM = 8 << 30
CALM_SECONDS = 0.5  # after an answer, whoever has it goes on, and may ask again
_AGAIN_SECONDS = 1.0  # what stands still is told so again: it may have been missed, or woken
HELD_SECONDS = 0.02  # after a greeting: a hit takes a few milliseconds
_HELD_AGAIN_SECONDS = 0.2  # between two such pauses


class Step:
    """A command in the background; ``urgency`` is what callers have missed for it so far.
    Its clock stands still while it is stopped. Methods are called from threads, too."""

    def __init__(
        self, on_change: Callable[[], None] = lambda: None, urgency: Callable[[], int] = lambda: 0
    ) -> None:
        self.sid: int | None = None
        self.is_hasty = False  # somebody waits for it
        self._lock = threading.Lock()
        self._ended = False
        self._held = False
        self._on_change = on_change
        self.urgency = urgency
        self._stopped_at: float | None = None
        self._lost = 0.0

    @property
    def has_ended(self) -> bool:
        return self._ended

    def hasten(self) -> None:
        """Somebody waits for it from now on."""
        self.is_hasty = True
        with contextlib.suppress(OSError):
            self.signal(stop=False)
        self._on_change()

    @property
    def lost(self) -> float:
        """Seconds for which it was stopped."""
        return self._lost + (
            0.0 if self._stopped_at is None else time.monotonic() - self._stopped_at
        )

    def signal(self, *, stop: bool) -> None:
        """Stop it, or have it go on. Looks at every process of the machine. Raises OSError."""
        with self._lock:
            if not self._ended:
                self._signal(stop=stop)

    def end(self) -> None:
        """It gives way no longer: it has ended, or goes on as something else."""
        with self._lock:
            self._ended = True
            with contextlib.suppress(OSError):
                self._signal(stop=False)
        self._on_change()

    def _signal(self, *, stop: bool) -> None:
        if self.sid is not None and (stop or self._held or self._stopped_at is not None):
            reaper.signal_session(self.sid, signal.SIGSTOP if stop else signal.SIGCONT)
            self._lost, self._stopped_at = self.lost, time.monotonic() if stop else None
            self._held = False

    def hold(self) -> bool:
        """Stop it in microseconds, for a moment; False where that is not needed or not possible."""
        if not self._lock.acquire(blocking=False):
            return False  # it is being signalled
        try:
            if self.sid is None or self._ended or self._stopped_at is not None:
                return False
            with contextlib.suppress(OSError):
                reaper.signal_groups(self.sid, signal.SIGSTOP)
                self._held = True
            return self._held
        finally:
            self._lock.release()

    def let_go(self) -> bool:
        """Have what was held go on, unless it was stopped meanwhile.
        False while it is being signalled, which does not say that it goes on."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._held and self.sid is not None:
                self._held = False
                with contextlib.suppress(OSError):
                    reaper.signal_groups(self.sid, signal.SIGCONT)
            return True
        finally:
            self._lock.release()

    async def within(self, seconds: float, work: Awaitable[object]) -> None:
        """Wait for ``work``, at most for this long by its own clock.
        Cancels it and raises TimeoutError then."""
        task = asyncio.ensure_future(work)
        started = time.monotonic() - self.lost
        try:
            while not task.done():
                left = seconds - (time.monotonic() - self.lost - started)
                if left <= 0:
                    raise asyncio.TimeoutError
                await asyncio.wait([task], timeout=left)
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class Haste:
    """Whether somebody waits for work in the background: from then on it gives way no longer.
    ``urgency`` is that of its steps until then."""

    def __init__(self, *, wanted: bool = False, urgency: Callable[[], int] = lambda: 0) -> None:
        self.wanted = wanted
        self.urgency = urgency
        self._steps: list[Step] = []
        self._parts: list[Haste] = []

    def want(self) -> None:
        """Somebody waits for it from now on."""
        self.wanted = True
        for step in self._steps:
            step.hasten()
        for part in self._parts:
            part.want()

    def reaches(self, part: Haste) -> None:
        """That of work which others may want as well is a part of this one."""
        if part is not self and part not in self._parts:
            self._parts.append(part)
            if self.wanted:
                part.want()

    def runs(self, step: Step) -> None:
        """Take a step as one that may be waited for."""
        self._steps = [one for one in self._steps if not one.has_ended] + [step]
        if self.wanted:
            step.hasten()


class Background:
    """Of one daemon. Without permits to look at, nothing gives way."""

    def __init__(self, permits: Permits | None = None) -> None:
        self._permits = permits
        self._steps: dict[Step, None] = {}  # of what nobody asked for, what helps most began first
        self._alone = 0  # blocks that are to be
        self._calm_until = 0.0
        self._held_again_at = 0.0
        self._elsewhere: set[bytes] = set()  # clients in whose processes stock torch builds
        self._changed = asyncio.Event()
        if permits is not None:
            permits.on_change = self._changed.set

    @staticmethod
    def turns(slots: int = 1) -> Turns:
        """For work in the background: so many at a time, the most urgent first."""
        return Turns(slots)

    @staticmethod
    def has_room() -> bool:
        """Whether there is a processor and memory for a second one beside what is made."""
        return resources.processors() > 1 and resources.available_memory() > _ROOM

    @contextlib.contextmanager
    def step(self, urgency: Callable[[], int] = lambda: 0) -> Iterator[Step]:
        """For the time of the block, what is started as this step gives way."""
        step = Step(self._changed.set, urgency)
        self._steps[step] = None
        try:
            yield step
        finally:
            self._steps.pop(step, None)
            step.end()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """For the time of the block, steps that somebody waited for give way as well, unless
        a holder of a permit waits for something now."""
        self._alone += 1
        self._changed.set()
        try:
            yield
        finally:
            self._alone -= 1
            self._changed.set()

    def answered(self) -> None:
        """Somebody has what was built, and the processors for a moment."""
        was_free = self._is_free
        self._calm_until = time.monotonic() + CALM_SECONDS
        if was_free:
            self._changed.set()

    def greeted(self) -> None:
        """A client has come and will ask at once, most likely for what is there: it finds the
        processors free. What wakes up may have to wait for some of the scheduler's ticks until it
        gets one, however low the priority of what runs there."""
        if self._permits is None or (now := time.monotonic()) < self._held_again_at:
            return
        self._held_again_at = now + _HELD_AGAIN_SECONDS
        if held := [step for step in self._steps if not step.is_hasty and step.hold()]:
            asyncio.get_running_loop().call_later(HELD_SECONDS, self._let_go, held)

    def _let_go(self, held: list[Step]) -> None:
        if left := [step for step in held if not step.let_go()]:
            asyncio.get_running_loop().call_later(HELD_SECONDS, self._let_go, left)

    def elsewhere(self, client: bytes, *, builds: bool) -> None:
        """Stock torch builds in this client's process, or no longer does."""
        if builds:
            was_free = self._is_free
            self._elsewhere.add(client)
            if was_free:
                self._changed.set()
        elif client in self._elsewhere:
            self._elsewhere.remove(client)
            self.answered()

    @property
    def _is_calm(self) -> bool:
        return time.monotonic() < self._calm_until

    @property
    def _is_free(self) -> bool:
        return not self._is_calm and not self._elsewhere

    def started(self, step: Step, sid: int) -> None:
        """The command of a step runs, in this session."""
        step.sid = sid
        self._changed.set()

    @property
    def steps_at_a_time(self) -> int:
        """How many steps of builds may run at a time."""
        return resources.steps() if self._permits is None else self._permits.limit

    def steps_left(self, own: float) -> float:
        """How many steps others leave to a request that has so many running itself."""
        in_use = 0 if self._permits is None else self._permits.in_use
        return self.steps_at_a_time - max(0.0, in_use - own)

    async def quiet(
        self, urgency: Callable[[], int] = lambda: 0, haste: Haste | None = None
    ) -> None:
        """Wait for a moment when nobody waits for a build, or for one with room for what is so
        urgent; no longer where ``haste`` comes."""
        if self._permits is None:
            return
        haste = haste or Haste()
        until = time.monotonic() + PATIENCE_SECONDS
        since = time.monotonic()
        while not haste.wanted and (now := time.monotonic()) < min(since + QUIET_SECONDS, until):
            await asyncio.sleep(0.1)
            shared = _FREE if urgency() >= _REPEATED else _BEGINS
            if self._elsewhere or self._permits.in_use > self._permits.limit // shared:
                since = now

    def _in_the_way(self) -> set[Step]:
        """The steps that have to stand still: all, or all but the most urgent ones, while few steps
        of builds run."""
        permits = self._permits
        assert permits is not None
        hasty = {step for step in self._steps if step.is_hasty}
        if self._alone and not permits.lent:
            hasty = set()
        others = [step for step in self._steps if not step.has_ended and step not in hasty]
        others.sort(key=lambda step: -step.urgency())
        if self._elsewhere:
            return set(others)
        if not (busy := permits.in_use + _HASTY * len(hasty) + self._is_calm):
            return set()
        if busy <= permits.limit // _SHARED:
            return set(others[max(1, permits.limit // _BESIDE) :])
        goes_on = busy <= permits.limit // _FREE and others and others[0].urgency() >= _REPEATED
        return set(others[1 if goes_on else 0 :])

    async def run(self) -> None:
        """Stop the steps and have them go on, as builds come and go; until it is cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._in_the_way():
                    await self._stop()
                    await self._free(PATIENCE_SECONDS)
                    if self._in_the_way():
                        await self._signal(set())
                        await asyncio.sleep(SLICE_SECONDS)
                await self._signal(set())
        finally:
            for step in self._steps:
                step.end()

    async def _free(self, seconds: float) -> None:
        """Wait for the steps to be free, for so long at most; new ones stop as well."""
        until = time.monotonic() + seconds
        while self._in_the_way() and (left := until - time.monotonic()) > 0:
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                # Not wait_for, which may swallow a cancellation
                await asyncio.wait([changed], timeout=min(left, _AGAIN_SECONDS))
            finally:
                changed.cancel()
            if self._in_the_way():
                await self._stop()

    async def _stop(self) -> None:
        await self._signal(self._in_the_way())

    async def _signal(self, stopped: set[Step]) -> None:
        """Have these stand still, and the others go on."""
        for step in list(self._steps):
            with contextlib.suppress(OSError, RuntimeError):  # no descriptor, no thread: it runs on
                await asyncio.to_thread(step.signal, stop=step in stopped)
