"""In which order the daemon warms up; integration tests look at what it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from warmcc.client.cli.status import warming
from warmcc.config import Config
from warmcc.daemon.serve import prewarm
from warmcc.daemon.serve.prewarm import Prewarmer
from warmcc.daemon.serve.targets import State, Target
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.permits import Permits
from warmcc.status import DaemonStatus


class Recorder(Prewarmer):
    """Each target takes until it is let go."""

    def __init__(self, limit: int, ahead: Sequence[str] = ()) -> None:
        unused: Any = None
        self.begun: list[str] = []
        self.ahead: list[str] = []
        self.end_ahead = asyncio.Event()
        self.ends: dict[str, asyncio.Event] = {}
        config = Config(prewarm=["", "-O3"], prewarm_idle=list(ahead))
        super().__init__(
            config, unused, unused, unused, Background(Permits(limit, 1)), unused,
        )  # fmt: skip

    def _flag_sets(self, target: Target) -> list[str]:
        return [""]

    async def _warm_ahead(self, target: Target, flags: str) -> None:
        self.ahead.append(flags)
        await self.end_ahead.wait()

    async def _warm(self, target: Target, flags: str) -> None:
        self.begun.append(target.language)
        self.ends[target.language] = asyncio.Event()
        await self.ends[target.language].wait()
        if target.language == "CUDA":
            raise RuntimeError("no nvcc")


@pytest.mark.parametrize(("limit", "first"), [(3, ["C++"]), (18, ["C++", "CUDA"])])
def test_side_by_side_where_there_are_processors(limit: int, first: list[str]) -> None:
    async def play() -> None:
        one = Recorder(limit)
        running = asyncio.create_task(one.run())
        await asyncio.sleep(0.05)
        assert one.begun == first
        one.ends["C++"].set()
        await asyncio.sleep(0.05)
        assert one.begun == ["C++", "CUDA"]
        one.ends["CUDA"].set()
        await asyncio.sleep(0.05)
        states = {target.language: target.state for target in one.targets.all}
        assert states == {"C++": State.WARM, "CUDA": State.FAILED}
        assert one.left == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_the_rest_of_one_beside_the_next() -> None:
    async def play() -> None:
        one = Recorder(3)
        running = asyncio.create_task(one.run())
        await asyncio.sleep(0.05)
        assert one.begun == ["C++"]
        one.targets.all[0].mostly_warm.set()
        await asyncio.sleep(0.05)
        assert one.begun == ["C++", "CUDA"] and one.left == 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


@pytest.mark.parametrize(("limit", "begun"), [(3, ["-O3"]), (18, ["-O3", "-O2"])])
def test_ahead_side_by_side_where_there_are_processors(
    limit: int, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prewarm, "_IDLE_SECONDS", 0.01)

    async def play() -> None:
        one = Recorder(limit, ahead=["-O3", "-O2"])
        running = asyncio.create_task(one.run())
        for language in ("C++", "CUDA"):
            while language not in one.ends:
                await asyncio.sleep(0.01)
            one.ends[language].set()
        await asyncio.sleep(0.2)
        assert one.ahead == begun and one.left_for_idle == 2
        told = DaemonStatus(prewarming=one.left, prewarming_idle=one.left_for_idle)
        assert warming(told) == "0 flag sets to go, and 2 when nothing else is to do"
        one.end_ahead.set()
        await asyncio.sleep(0.2)
        assert one.ahead == ["-O3", "-O2"] and one.left_for_idle == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


@pytest.mark.parametrize("limit", [3, 18])
def test_its_end_ends_what_it_warms(limit: int) -> None:
    async def play() -> None:
        one = Recorder(limit)
        running = asyncio.create_task(one.run())
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())
