"""Work in the background that calls have missed more than once, beside builds."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from warmcc.daemon.system import background
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.permits import Permits, Share


@pytest.mark.parametrize(("limit", "steps"), [(3, 1), (18, 9)])
def test_what_calls_miss_again_goes_on_where_half_of_the_processors_are_free(
    limit: int, steps: int
) -> None:
    """As in a setup.py, which compiles one source after the other."""

    async def play() -> None:
        permits = Permits(limit, 0)
        place = Background(permits)
        share = Share("somebody", limit)
        with contextlib.ExitStack() as stack:
            ahead = stack.enter_context(place.step())
            missed = 1
            wanted = stack.enter_context(place.step(lambda: missed))
            another = stack.enter_context(place.step(lambda: missed))
            async with contextlib.AsyncExitStack() as builds:
                for _ in range(steps):
                    await builds.enter_async_context(permits.hold(share))
                assert place._in_the_way() == {ahead, wanted, another}
                missed = 2
                assert place._in_the_way() == {ahead, another}
                place.elsewhere(b"somebody", builds=True)
                assert place._in_the_way() == {ahead, wanted, another}
                place.elsewhere(b"somebody", builds=False)
                place._calm_until = 0.0
                async with permits.hold(share):
                    assert place._in_the_way() == {ahead, wanted, another}

    asyncio.run(play())


@pytest.mark.parametrize(("missed", "begins"), [(1, False), (2, True)])
def test_what_calls_miss_again_begins_beside_a_build(missed: int, begins: bool) -> None:
    async def play() -> None:
        permits = Permits(3, 0)
        async with permits.hold(Share("somebody", 3)):
            waiting = asyncio.ensure_future(Background(permits).quiet(lambda: missed))
            done, _ = await asyncio.wait([waiting], timeout=background.QUIET_SECONDS + 1)
            assert bool(done) == begins
            waiting.cancel()

    asyncio.run(play())
