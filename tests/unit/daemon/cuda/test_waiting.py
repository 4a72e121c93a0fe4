"""Whether a unit waits for a profile whose host's prelude is still to be made. What makes preludes
and fork servers stands still here: how long each takes is what matters, not what it makes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.daemon.cuda.test_room import level, profile
from warmcc.daemon.cuda.warm.growing import NOT_YET
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.permits import Permits


class Hosts:
    """Of preludes whose text is there, or comes."""

    def __init__(self) -> None:
        self.has_text = False
        self.asked: list[str] = []

    async def find(self, _: CudaProfile) -> bool:
        return self.has_text

    async def give(self, profile: CudaProfile) -> None:
        self.asked.append(profile.key)
        await asyncio.Event().wait()

    begin = give

    async def close(self) -> None:
        pass


class Starter:
    """Lean levels are there at once."""

    async def missing(self, _: CudaProfile) -> float:
        return 0.0

    async def lean(self, profile: CudaProfile) -> None:
        profile.lean = level(0)


@contextlib.asynccontextmanager
async def apart() -> AsyncIterator[None]:
    yield


def wanted(key: str) -> CudaProfile:
    made = profile(key)
    made.state, made.lean = "building", None
    return made


async def many(folder: Path, hosts: Hosts, *, steps: int) -> CudaProfiles:
    """Profiles of a daemon that makes one of them in the background, and has made no text."""
    parts: list[Any] = [None, Starter(), hosts, Background(Permits(steps, 0)), 64 << 30, {"maker"}]
    made = CudaProfiles(folder, *parts)
    assert await made.get(wanted("first"), waits=None) == NOT_YET
    while not hosts.asked:
        await asyncio.sleep(0.01)
    return made


@pytest.fixture(autouse=True)
def every_server_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Level, "alive", True)


@pytest.mark.timeout(60)
def test_with_processors_to_spare_a_unit_does_not_wait_for_what_nobody_has_begun(
    tmp_path: Path,
) -> None:
    """Also where the fork servers are there; but from the second time on it is made now."""

    async def play() -> None:
        hosts = Hosts()
        profiles = await many(tmp_path, hosts, steps=16)
        other = wanted("other")
        assert await profiles.get(other, waits=apart) == NOT_YET
        assert await profiles.devices_alone(other) is other
        assert not other.haste.wanted and hosts.asked == ["first"]
        assert await profiles.get(wanted("other"), waits=apart) == NOT_YET
        assert other.haste.wanted
        await asyncio.sleep(0.1)
        assert set(hosts.asked) == {"first", "other"}
        hosts.has_text = True
        assert await profiles.get(wanted("other"), waits=apart) is other
        await profiles.close()

    asyncio.run(play())


@pytest.mark.timeout(60)
def test_on_few_processors_a_unit_has_it_made_and_takes_it(tmp_path: Path) -> None:
    async def play() -> None:
        hosts = Hosts()
        profiles = await many(tmp_path, hosts, steps=4)
        other = wanted("other")
        assert await profiles.get(other, waits=apart) is other, "its fork servers are there"
        assert other.haste.wanted
        await asyncio.sleep(0.1)
        assert set(hosts.asked) == {"first", "other"}
        await profiles.close()

    asyncio.run(play())
