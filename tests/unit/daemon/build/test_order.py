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


def test_short_ones_begin_after_the_plain_cpp_units() -> None:
    async def play() -> None:
        begun: list[Unit] = []

        async def compile_one(unit: Unit) -> Finished:
            begun.append(unit)
            return Finished(0, "")

        compiling = Compiling(UNUSED, UNUSED, Share("client", 2))
        compiling.start([SHORT, LONG], Permits(2, 1), compile_one, short={SHORT})
        await asyncio.sleep(0.1)
        assert begun == [LONG]
        compiling.plain_have_begun.set()
        assert (await compiling.finished()).code == 0
        assert begun == [LONG, SHORT]
        await compiling.close()

    asyncio.run(play())


def test_no_other_begins_where_the_plain_cpp_units_failed() -> None:
    async def play() -> None:
        begun: list[Unit] = []

        async def compile_one(unit: Unit) -> Finished:
            begun.append(unit)
            return Finished(0, "")

        compiling = Compiling(UNUSED, UNUSED, Share("client", 2))
        compiling.start([SHORT], Permits(2, 1), compile_one, short={SHORT})
        await asyncio.sleep(0.1)
        await compiling.close()
        assert not begun

    asyncio.run(play())


def test_a_build_that_nobody_waits_for_has_no_order() -> None:
    async def play() -> None:
        async def compile_one(_: Unit) -> Finished:
            return Finished(0, "")

        compiling = Compiling(UNUSED, UNUSED, None)
        compiling.start([SHORT], Permits(2, 1), compile_one, short={SHORT})
        assert (await compiling.finished()).code == 0
        await compiling.close()

    asyncio.run(play())
