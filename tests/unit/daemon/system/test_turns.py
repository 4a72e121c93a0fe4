"""Whose turn it is in the background."""

from __future__ import annotations

import asyncio

import pytest

from warmcc.daemon.system.permits import Turns


def test_the_most_urgent_is_next() -> None:
    async def run() -> list[str]:
        turns, begun = Turns(), []
        urgency = {
            "first": 0,
            "of use": 0,
            "missed": 1,
            "missed often": 2,
            "given up": 9,
            "of use, later": 0,
        }

        async def one(name: str) -> None:
            async with turns.turn(lambda: urgency[name]):
                begun.append(name)
                await asyncio.sleep(0.001)

        tasks = {name: asyncio.create_task(one(name)) for name in urgency}
        await asyncio.sleep(0)
        tasks["given up"].cancel()
        urgency["of use, later"] = 3  # somebody has asked for it meanwhile
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        async with turns.turn(lambda: 0):
            begun.append("last")
        return begun

    assert asyncio.run(run()) == [
        "first",
        "of use, later",
        "missed often",
        "missed",
        "of use",
        "last",
    ]


def test_a_turn_passes_by_who_is_being_cancelled() -> None:
    """One that has been cancelled hears of it a moment later."""

    async def run() -> None:
        turns, ends = Turns(), asyncio.Event()

        async def one(until: asyncio.Event | None) -> None:
            async with turns.turn(lambda: 0):
                if until is not None:
                    await until.wait()

        holder = asyncio.create_task(one(ends))
        await asyncio.sleep(0)
        given_up, next_one = (asyncio.create_task(one(None)) for _ in range(2))
        await asyncio.sleep(0)
        ends.set()  # the holder goes on first
        given_up.cancel()
        await asyncio.gather(holder, next_one)
        with pytest.raises(asyncio.CancelledError):
            await given_up

    asyncio.run(asyncio.wait_for(run(), 10))
