"""Permits: how many steps run at a time, and whose turn it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from warmcc.daemon.system import resources
from warmcc.daemon.system.permits import Permits, Share

MEMORY = 1  # byte that a step needs


class World:
    """Steps that run until they are told to end, in the order in which they began."""

    def __init__(self, permits: Permits) -> None:
        self.permits = permits
        self.began: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def step(self, name: str, share: Share, *, first: bool = False) -> None:
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._run(name, share, first=first))

    async def _run(self, name: str, share: Share, *, first: bool) -> None:
        async with self.permits.hold(share, first=first):
            self.began.append(name)
            await self.ends[name].wait()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


def played(limit: int, play: Callable[[World], Awaitable[None]], memory: int = MEMORY) -> Permits:
    """Play it, and see that all permits are back in the end."""

    async def run() -> Permits:
        world = World(Permits(limit, memory))
        try:
            await play(world)
        finally:
            await world.close()
        assert (world.permits.in_use, world.permits.queue_length) == (0, 0)
        return world.permits

    return asyncio.run(run())


def test_no_more_than_the_limit_begin() -> None:
    async def play(world: World) -> None:
        share = Share("client", 10)
        for number in range(4):
            world.step(str(number), share)
        await world.settle()
        assert (world.began, world.permits.queue_length) == (["0", "1"], 2)
        await world.end("1")
        assert world.began == ["0", "1", "2"]

    played(2, play)


def test_a_share_has_at_most_its_own_number() -> None:
    async def play(world: World) -> None:
        one, other = Share("client", 1), Share("client", 8)
        world.step("one 0", one)
        world.step("one 1", one)
        world.step("other 0", other)
        await world.settle()
        assert world.began == ["one 0", "other 0"], "who waits for its own share holds up nobody"
        await world.end("one 0")
        assert world.began[-1] == "one 1"

    played(4, play)


def test_a_kernel_of_one_file_is_not_behind_a_package_of_fifty() -> None:
    async def play(world: World) -> None:
        package, kernel = Share("package", 50), Share("kernel", 50)
        for number in range(50):
            world.step(f"package {number}", package)
        await world.settle()
        world.step("kernel", kernel)
        await world.settle()
        assert world.began == ["package 0", "package 1", "kernel"], (
            "one too many is better than to wait"
        )
        world.step("kernel 2", kernel)
        await world.settle()
        assert "kernel 2" not in world.began, "but for its first step alone"
        await world.end("package 0")
        assert len(world.began) == 3, "and the package pays for it"
        await world.end("package 1")
        assert world.began[-1] in ("kernel 2", "package 2")

    played(2, play)


def test_clients_take_turns_and_so_do_flights_of_one_client() -> None:
    async def play(world: World) -> None:
        first, second, other = Share("client", 9), Share("client", 9), Share("other", 9)
        world.step("busy", Share("busy", 1))
        await world.settle()
        for number in range(2):
            world.step(f"first {number}", first)
        for number in range(2):
            world.step(f"second {number}", second)
        world.step("other", other)
        order = ["busy", "first 0", "other", "second 0", "first 1", "second 1"]
        for name in order:
            await world.end(name)
        assert world.began == order

    played(1, play)


def test_who_stops_waiting_leaves_no_hole() -> None:
    async def play(world: World) -> None:
        share = Share("client", 9)
        for name in ("runs", "leaves", "stays"):
            world.step(name, share)
        await world.settle()
        world.tasks["leaves"].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await world.tasks["leaves"]
        world.ends["runs"].set()
        await world.tasks["runs"]
        await world.settle()
        assert world.began == ["runs", "stays"]

    played(1, play)


def test_who_is_cancelled_with_its_turn_in_hand_gives_it_back() -> None:
    async def play(world: World) -> None:
        share = Share("client", 9)
        for name in ("runs", "cancelled", "next"):
            world.step(name, share)
        await world.settle()
        world.ends["runs"].set()
        await asyncio.sleep(0)  # it ends, and hands its permit on,
        world.tasks["cancelled"].cancel()  # to one that does not live to use it
        await world.settle()
        await world.settle()
        assert "next" in world.began

    played(1, play)


def test_one_runs_whatever_the_memory() -> None:
    async def play(world: World) -> None:
        world.step("one", Share("a", 9))
        world.step("two", Share("b", 9))
        await world.settle()
        assert world.began == ["one"]
        await world.end("one")
        assert world.began == ["one", "two"]

    played(8, play, memory=resources.total_memory() * 2)


def test_what_was_granted_a_moment_ago_takes_its_memory_later() -> None:
    async def play(world: World) -> None:
        share = Share("a", 9)
        for number in range(5):
            world.step(str(number), share)
        await world.settle()
        assert len(world.began) == 2, (
            "there is memory for two now, and the first has not taken its own yet"
        )

    played(8, play, memory=int(resources.available_memory() / 2.5))


@pytest.mark.parametrize("most", [0, 1])
def test_the_first_permit_is_told_of_once(most: int) -> None:
    told: list[int] = []

    async def play(world: World) -> None:
        share = Share("a", most, lambda _: told.append(world.permits.in_use))
        world.step("one", share)
        world.step("two", share)
        await world.settle()
        await world.end("one")
        await world.end("two")

    played(2, play)
    assert told == [1]


def test_a_flight_that_is_nearly_done_goes_first() -> None:
    """Else the links of many would wait until all of them are compiled."""

    async def play(world: World) -> None:
        begun, others = Share("client", 9), Share("other", 9)
        world.step("compile", begun)
        await world.settle()
        for number in range(3):
            world.step(f"other {number}", others)
        await world.settle()
        begun.last = True
        world.step("link", begun)
        await world.end("compile")
        assert world.began == ["compile", "link"]

    played(1, play)


def test_what_takes_longest_begins_before_other_steps_of_its_flight() -> None:
    """Not before those of another flight."""

    async def play(world: World) -> None:
        share, other = Share("client", 9), Share("other", 9)
        for name in ("one", "two", "three"):
            world.step(name, share)
        await world.settle()
        world.step("long", share, first=True)
        world.step("of another", other)
        await world.end("one")
        await world.end("long")
        await world.end("of another")
        assert world.began == ["one", "long", "of another", "two"]
        world.tasks["three"].cancel()
        world.step("given up", share, first=True)
        await world.settle()
        world.tasks["given up"].cancel()
        await world.settle()
        assert world.permits.queue_length == 0

    played(1, play)


class Lender:
    """A step that waits for something in the middle; ``told`` is what became of it."""

    def __init__(self, world: World, share: Share) -> None:
        self.world = world
        self.share = share
        self.waits = asyncio.Event()
        self.ends = asyncio.Event()
        self.told: list[str] = []
        self.task = asyncio.create_task(self._run())
        world.tasks[f"lender {id(self)}"] = self.task

    async def _run(self) -> None:
        async with self.world.permits.hold(self.share):
            async with self.world.permits.apart(self.share):
                self.told.append("apart")
                await self.waits.wait()
            self.told.append("back")
            await self.ends.wait()


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_step_that_waits_for_something_lends_its_permit(cancelled: bool) -> None:
    async def play(world: World) -> None:
        share = Share("a", 1, is_bound=True)
        lender = Lender(world, share)
        await world.settle()
        assert (lender.told, world.permits.in_use) == (["apart"], 0)
        world.step("other", share)
        await world.settle()
        assert world.began == ["other"]
        if cancelled:
            lender.task.cancel()
        lender.waits.set()
        await world.settle()
        assert lender.told == ["apart"], "its caller wants one at a time"
        if cancelled:
            lender.task.cancel()
        await world.end("other")
        lender.ends.set()
        await asyncio.gather(lender.task, return_exceptions=True)
        assert lender.told == (["apart"] if cancelled else ["apart", "back"])

    assert played(1, play).in_use == 0


def test_what_lent_its_permit_need_not_wait_for_a_long_step() -> None:
    """Twice as many as the limit may run then, and no more."""

    async def play(world: World) -> None:
        share = Share("a", 2)
        lenders = [Lender(world, share) for _ in range(3)]
        await world.settle()
        world.step("one", share)
        world.step("two", share)
        await world.settle()
        for lender in lenders:
            lender.waits.set()
        await world.settle()
        assert [lender.told[-1] for lender in lenders] == ["back", "back", "apart"]
        world.step("three", share)
        lenders[0].ends.set()
        await world.settle()
        assert lenders[2].told[-1] == "back", "as soon as one of them all has ended"
        await world.end("one")
        await world.end("two")
        assert world.began == ["one", "two"]
        lenders[1].ends.set()
        await world.settle()
        assert world.began == ["one", "two", "three"]

    played(2, play)


def test_what_lent_its_permit_needs_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"now": 100}
    monkeypatch.setattr(resources, "available_memory", lambda: free["now"])

    async def play(world: World) -> None:
        lender = Lender(world, Share("a", 2))
        await world.settle()
        world.step("other", Share("b", 2))
        await world.settle()
        free["now"] = 0
        lender.waits.set()
        await world.settle()
        assert lender.told == ["apart"]
        await world.end("other")
        assert lender.told == ["apart", "back"]

    played(2, play)
