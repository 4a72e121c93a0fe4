"""How many samples are taken: one of each kind, and that a late one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.support.shelf import Bench
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.verify.sampling import Inputs, Sampler


class Recorded:
    """A sample that is the same as stock's."""

    name, maker, inputs = "toy", "lean a", Inputs({})

    def __init__(self, kind: str, number: int, compared: list[tuple[str, int]]) -> None:
        self.kind, self._number, self._compared = kind, number, compared

    async def differing(self, folder: Path) -> list[str]:
        self._compared.append((self.kind, self._number))
        return []


def a_sampler(bench: Bench, after: float) -> Sampler:
    trust = Trust(bench.folder / "withdrawn.json", bench.store)
    return Sampler(bench.store, Background(), Counters(), trust, after=after)


def test_of_many_builds_at_a_time_some_are_offered(bench: Bench) -> None:
    sampler, compared = a_sampler(bench, 0.4), list[tuple[str, int]]()

    async def build() -> None:
        checking = asyncio.create_task(sampler.run())
        until = time.monotonic() + 1.0
        number = 0
        while time.monotonic() < until:
            sampler.built()
            number += 1
            if sampler.wants("CUDA"):
                sampler.offer(Recorded("CUDA", number, compared))
                assert not sampler.wants("CUDA")
                assert sampler.wants("lean"), "each kind by itself"
            await asyncio.sleep(0.01)
        assert compared == [], "builds come one after the other"
        while not compared:
            await asyncio.sleep(0.01)
        assert sampler.wants("CUDA"), "what was compared needs a successor"
        checking.cancel()
        await asyncio.gather(checking, return_exceptions=True)
        ((_, taken),) = compared
        assert taken > number / 2, "a late one"

    asyncio.run(asyncio.wait_for(build(), 30.0))


def test_without_samples_none_is_wanted(bench: Bench) -> None:
    sampler, nothing = a_sampler(bench, 0.0), list[Any]()
    assert not sampler.wants("CUDA")
    sampler.offer(Recorded("CUDA", 1, nothing))
    asyncio.run(asyncio.wait_for(sampler.run(), 5.0))
    assert nothing == []
