"""When the CUDA units of a flight begin. What compiles them only notes that it was asked."""

from __future__ import annotations

import asyncio
from typing import Any

from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished

LONG, SHORT = (Unit(f"{name}.cu", f"{name}.o", None, ()) for name in ("long", "short"))
UNUSED: Any = None


class Noted:
    """A flight with these CUDA units, of which one is short; ``begun`` are those that began."""

    def __init__(self, units: list[Unit], share: Share | None) -> None:
        self.begun: list[Unit] = []
        self.compiling = Compiling(UNUSED, UNUSED, share)
        self.compiling.start(units, Permits(2, 1), self._compile_one, short={SHORT})

    async def _compile_one(self, unit: Unit) -> Finished:
        self.begun.append(unit)
        return Finished(0, "")


def test_short_ones_begin_after_the_plain_cpp_units() -> None:
    async def play() -> None:
        noted = Noted([SHORT, LONG], Share("client", 2))
        await asyncio.sleep(0.1)
        assert noted.begun == [LONG]
        noted.compiling.plain_have_begun.set()
        assert (await noted.compiling.finished()).code == 0
        assert noted.begun == [LONG, SHORT]
        await noted.compiling.close()

    asyncio.run(play())


def test_what_waits_for_the_plain_cpp_units_can_be_given_up() -> None:
    """As where one of these fails."""

    async def play() -> None:
        noted = Noted([SHORT], Share("client", 2))
        await asyncio.sleep(0.1)
        await asyncio.wait_for(noted.compiling.close(), 10)
        assert not noted.begun

    asyncio.run(play())


def test_a_build_that_nobody_waits_for_has_no_order() -> None:
    async def play() -> None:
        noted = Noted([SHORT], None)
        assert (await noted.compiling.finished()).code == 0
        assert noted.begun == [SHORT]
        await noted.compiling.close()

    asyncio.run(play())
