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
from warmcc.daemon.cuda.warm.host_choice import HostChoice
from warmcc.daemon.cuda.warm.host_pch import HostPrelude, Making
from warmcc.daemon.cuda.warm.host_text import Said
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile, Need
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.system import resources
from warmcc.daemon.system.background import Background, Haste
from warmcc.daemon.system.permits import Permits, Share


class Hosts:
    """Of preludes whose text is there, or comes."""

    def __init__(self) -> None:
        self.has_text = False
        self.making = Making(Haste())
        self.asked: list[str] = []

    async def find(self, profile: CudaProfile) -> bool:
        if self.has_text:
            nothing: Any = None
            profile.host = HostPrelude(
                Path("prelude.h"), frozenset(), [], Said(""), nothing, frozenset(), frozenset(),
                self.making,
            )  # fmt: skip
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
    made.state, made.lean, made.asked = "building", None, 0
    return made


class Profiles(CudaProfiles):
    def __init__(self, folder: Path, hosts: Hosts, permits: Permits) -> None:
        parts: list[Any] = [None, Starter(), hosts, Background(permits), 64 << 30, {"maker"}]
        super().__init__(folder, *parts)
        self.permits = permits


async def many(folder: Path, hosts: Hosts, *, steps: int) -> Profiles:
    """Those of a daemon that makes one in the background, and has made no text."""
    made = Profiles(folder, hosts, Permits(steps, 0))
    assert await made.get(wanted("first"), Need(None, ahead=True)) == NOT_YET
    while not hosts.asked:
        await asyncio.sleep(0.01)
    return made


@pytest.fixture(autouse=True)
def every_server_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Level, "alive", True)
    beside(monkeypatch, 1)


def beside(monkeypatch: pytest.MonkeyPatch, preludes: int) -> None:
    """On a machine that makes so many precompiled headers beside builds."""
    monkeypatch.setattr(resources, "precompilers", lambda: preludes)


@pytest.mark.timeout(60)
def test_with_processors_to_spare_a_unit_does_not_wait_for_what_nobody_has_begun(
    tmp_path: Path,
) -> None:
    """Also where the fork servers are there; but from the second time on it is made now."""

    async def play() -> None:
        hosts = Hosts()
        made = await many(tmp_path, hosts, steps=16)
        other = wanted("other")
        assert await made.get(other, Need(apart)) == NOT_YET
        assert await made.devices_alone(other) is other
        assert not other.haste.wanted and hosts.asked == ["first"]
        assert await made.get(wanted("other"), Need(apart)) == NOT_YET
        assert other.haste.wanted
        await asyncio.sleep(0.1)
        assert set(hosts.asked) == {"first", "other"}
        hosts.has_text = True
        assert await made.get(wanted("other"), Need(apart)) is other
        await made.close()

    asyncio.run(play())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("units", [1, 0.4])
def test_with_many_processors_it_is_begun_beside_the_first_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: float
) -> None:
    """It gives way as ever, but comes before what nobody asked for, and before a precompiled header
    that a C++ unit has missed, which loses less; and only so many at a time."""
    beside(monkeypatch, 3)

    async def play() -> None:
        hosts = Hosts()
        made = await many(tmp_path, hosts, steps=16)
        short, other, third, fourth = map(wanted, ("short", "other", "third", "fourth"))
        assert await made.get(short, Need(None, 0, 0)) == NOT_YET
        for one in (other, third, fourth):
            assert await made.get(one, Need(apart, units, units)) == NOT_YET
            await asyncio.sleep(0.1)
        assert set(hosts.asked) == {"first", "other", "third"}
        assert not any(one.haste.wanted for one in made.by_key.values())
        of_cpp = 3  # what one C++ unit adds to that of its precompiled header
        assert other.haste.urgency() > of_cpp > made.by_key["first"].haste.urgency()
        await made.close()

    asyncio.run(play())


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("steps", "of_others"), [(4, 0), (16, 14)])
def test_with_few_processors_left_a_unit_has_it_made_and_takes_it(
    tmp_path: Path, steps: int, of_others: int
) -> None:
    async def play() -> None:
        hosts = Hosts()
        made = await many(tmp_path, hosts, steps=steps)
        async with contextlib.AsyncExitStack() as stack:
            for number in range(of_others):
                await stack.enter_async_context(made.permits.hold(Share(number, 1)))
            other = wanted("other")
            assert await made.get(other, Need(apart)) is other, "its fork servers are there"
            assert other.haste.wanted
            await asyncio.sleep(0.1)
            assert set(hosts.asked) == {"first", "other"}
            await made.close()

    asyncio.run(play())


@pytest.mark.timeout(60)
def test_units_with_few_headers_do_not_wait_for_the_rest_of_a_prelude(tmp_path: Path) -> None:
    """To precompile its text takes longer than nvcc takes for them."""

    async def play() -> None:
        hosts = Hosts()
        made = await many(tmp_path, hosts, steps=2)
        few, more = wanted("few"), wanted("more")
        assert await made.get(few, Need(apart, 0.15, 0.15)) == NOT_YET
        hosts.has_text = True
        assert await made.get(few, Need(apart, 0.15, 0.15)) == NOT_YET
        assert await made.get(few, Need(apart, 0.15, 0.6)) == NOT_YET
        assert await made.get(more, Need(apart, 0.4, 0.4)) is more
        hosts.making = Making.done("digest")
        few.host = None
        assert await made.get(few, Need(apart, 0.15, 0.15)) is few
        await made.close()

    asyncio.run(play())


@pytest.mark.timeout(60)
def test_units_with_few_headers_do_without_until_they_have_lost_as_much(tmp_path: Path) -> None:
    """Nine of them in one request, too: what counts is what nvcc takes for all of them."""

    async def play() -> None:
        hosts = Hosts()
        made = await many(tmp_path, hosts, steps=2)
        other = wanted("other")
        for _ in range(8):
            assert await made.get(other, Need(apart, 0.25, 0.9)) == NOT_YET
            assert not other.haste.wanted
        assert other.without == 2
        assert await made.get(other, Need(apart, 0.25, 0.9)) is other and other.haste.wanted
        whole = wanted("whole")
        assert await made.get(whole, Need(apart, 0.25, 1.25)) is whole, "one is worth it at once"
        await made.close()

    asyncio.run(play())


class Kept:
    """Preludes of which none is there yet; notes who asks."""

    names = frozenset({"torch/extension.h"})

    def __init__(self) -> None:
        self.asked: list[Haste] = []

    async def get(self, _: Any, haste: Haste, *, kept: bool = False) -> None:
        assert kept
        self.asked.append(haste)


@pytest.mark.parametrize("folders", [[], ["/somewhere"]])
def test_to_look_for_a_prelude_hastens_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: list[str]
) -> None:
    """It would take the processors from the build that asks, which does without it."""

    async def recipe(*_: Any) -> None:
        pass

    monkeypatch.setattr(HostChoice, "_recipe", recipe)
    nothing: Any = None
    choice = HostChoice(
        tmp_path, nothing, nothing, steps=nothing, finisher=None, timeout=1.0
    )  # fmt: skip
    hosts: Any = Kept()
    choice._hosts = hosts
    other = wanted("other")
    other.folders = folders
    assert not asyncio.run(choice.find(other))
    assert hosts.asked and not any(haste.wanted for haste in hosts.asked)
