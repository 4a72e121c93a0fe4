"""How many steps of builds run at a time, and whose turn it is.

A *permit* is room for one step: the compile of a unit, or a link. There are as many as steps that
ninja would run at a time, and each needs memory. Each flight has a *share*, which waits for one
permit per step; clients take turns, then the flights of one client, so that a kernel of one file is
not queued behind a package of fifty. Work in the background, which holds no permits, has turns of
its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable

from warmcc.daemon.system import resources

_GROWS_SECONDS = 10.0  # a step takes its memory in the first seconds


class Share:
    """What one flight may have: at most ``most`` permits at a time; ``is_bound``: its caller wants
    no more, whatever this machine has.
    ``on_first`` is called when it gets its first, with the time since when it had asked
    (monotonic seconds); ``last``: what waits is its last step, which is short, and somebody
    waits for nothing else."""

    def __init__(
        self, client: Hashable, most: int, on_first: Callable[[float], None] = lambda _: None,
        *, is_bound: bool = False,
    ) -> None:  # fmt: skip
        self.client = client
        self.most = max(1, most)
        self.is_bound = is_bound
        self.held = 0
        self.last = False
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.waiting_first: deque[asyncio.Future[None]] = deque()  # those that take longest
        self.coming_back: deque[asyncio.Future[None]] = deque()  # those that had lent theirs
        self._on_first: Callable[[float], None] | None = on_first
        self._asked: float | None = None

    @property
    def queue_length(self) -> int:
        return len(self.waiting) + len(self.waiting_first) + len(self.coming_back)

    def asks(self) -> None:
        self._asked = self._asked or time.monotonic()

    def took(self) -> None:
        self.held += 1
        if self._on_first is not None and self._asked is not None:
            first, self._on_first = self._on_first, None
            first(self._asked)


class Permits:
    """At most ``limit`` steps at a time; each also needs ``job_memory`` bytes to be free.

    One may always run, whatever the memory, so that a small machine is slow and not stuck. A flight
    that has no permit need not wait for the end of a long step: it may be one too many while
    another flight has several. ``on_change`` is called when the number in use has changed.
    """

    def __init__(self, limit: int, job_memory: int) -> None:
        self.limit = limit or resources.steps()
        self.in_use = 0
        self.lent = 0  # by holders that wait for something
        self.on_change: Callable[[], None] = lambda: None
        self._job_memory = job_memory
        self._granted: deque[float] = deque()  # when, in the last seconds
        # Clients, and each one's shares, in order of their turns
        self._queues: dict[Hashable, dict[Share, None]] = {}
        self._several = 0  # shares that hold more than one

    def resize(self, limit: int, job_memory: int) -> None:
        """Other limits from now on; what runs goes on."""
        self.limit = limit or resources.steps()
        self._job_memory = job_memory
        self._wake()

    @property
    def queue_length(self) -> int:
        return sum(share.queue_length for shares in self._queues.values() for share in shares)

    @contextlib.asynccontextmanager
    async def hold(self, share: Share, *, first: bool = False) -> AsyncIterator[None]:
        """Hold one permit of a share, as soon as there is one; ``first``: before its other steps,
        which would keep the link waiting for this one."""
        share.asks()
        if self._queues or not self._may(share):
            await self._turn(share, share.waiting_first if first else share.waiting)
        else:
            self._take(share)
        try:
            yield
        finally:
            self._give_back(share)

    @contextlib.asynccontextmanager
    async def apart(self, share: Share) -> AsyncIterator[None]:
        """For a holder of a permit that waits for something: others have it meanwhile.

        It waits for none of these afterwards, as they may take long: so there may be up to twice as
        many steps for a while, if there is memory and its flight may have as many.
        """
        self.lent += 1
        self._give_back(share)
        try:
            yield
        finally:
            self.lent -= 1
            try:
                if share.coming_back or not self._may_come_back(share):
                    await self._turn(share, share.coming_back)
                else:
                    self._take(share)
            except asyncio.CancelledError:
                self._take(share)  # which its holder gives back
                raise

    def _may_come_back(self, share: Share) -> bool:
        """Whether a holder may have its permit again now."""
        has_room = share.held < share.most or not share.is_bound
        return self._may(share) or (
            has_room and self.in_use < 2 * self.limit and self._memory_for_one()
        )

    def _may(self, share: Share) -> bool:
        """Whether a share may have one more permit now."""
        if share.held >= share.most:
            return False
        if self.in_use == 0:
            return True
        one_too_many = self.in_use == self.limit and share.held == 0 and self._several > 0
        return (self.in_use < self.limit or one_too_many) and self._memory_for_one()

    def _memory_for_one(self) -> bool:
        """What was granted a moment ago does not have its memory yet."""
        since = time.monotonic() - _GROWS_SECONDS
        while self._granted and self._granted[0] < since:
            self._granted.popleft()
        return resources.available_memory() > self._job_memory * (
            1 + min(len(self._granted), self.in_use)
        )

    def _take(self, share: Share) -> None:
        self.in_use += 1
        self._granted.append(time.monotonic())
        share.took()
        self._several += share.held == 2
        self.on_change()

    def _give_back(self, share: Share) -> None:
        self.in_use -= 1
        self._several -= share.held == 2
        share.held -= 1
        self.on_change()
        self._wake()

    async def _turn(self, share: Share, queue: deque[asyncio.Future[None]]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._queues.setdefault(share.client, {})[share] = None
        try:
            self._wake()
            while not turn.done():
                # Memory comes back without telling: look again every second.
                await asyncio.wait([turn], timeout=1.0)
                self._wake()
        except asyncio.CancelledError:
            if turn.done():
                self._give_back(share)
            else:
                queue.remove(turn)
                self._forget_idle(share)
                self._wake()
            raise

    def _wake(self) -> None:
        while (found := self._next()) is not None:
            share, queue = found
            self._take(share)
            queue.popleft().set_result(None)
            self._to_the_end(share)

    def _next(self) -> tuple[Share, deque[asyncio.Future[None]]] | None:
        """The first share in turn that may have one more, and for what: for those first that had
        lent theirs, then for flights that are done with it."""
        shares = [share for shares in self._queues.values() for share in shares]
        for share in shares:
            if share.coming_back and self._may_come_back(share):
                return share, share.coming_back
        able = [
            share for share in shares
            if (share.waiting_first or share.waiting) and self._may(share)
        ]  # fmt: skip
        first = next((share for share in able if share.last), able[0] if able else None)
        return None if first is None else (first, first.waiting_first or first.waiting)

    def _to_the_end(self, share: Share) -> None:
        """Its next turn comes after those of all others."""
        shares = self._queues.pop(share.client)
        del shares[share]
        if share.queue_length:
            shares[share] = None
        if shares:
            self._queues[share.client] = shares

    def _forget_idle(self, share: Share) -> None:
        if not share.queue_length:
            del self._queues[share.client][share]
            if not self._queues[share.client]:
                del self._queues[share.client]


class Turns:
    """Admits a limited number at a time, the most urgent first: what callers have missed."""

    def __init__(self, slots: int = 1) -> None:
        self._free = slots
        self._waiting: dict[asyncio.Future[None], Callable[[], int]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, urgency: Callable[[], int]) -> AsyncIterator[None]:
        """Wait until no other waiter is more urgent; equals are served in order."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(urgency)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, urgency: Callable[[], int]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = urgency
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            if not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        # One whose task is being cancelled has not left yet
        if waiting := [turn for turn in self._waiting if not turn.done()]:
            turn = max(waiting, key=lambda one: self._waiting[one]())
            del self._waiting[turn]
            turn.set_result(None)
        else:
            self._free += 1
