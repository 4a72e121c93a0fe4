"""Which warm state goes for other warm state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from warmcc.daemon.cuda.warm import room
from warmcc.daemon.cuda.warm.fork_servers import ForkServer
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile

GB = 1_000_000_000


def server(memory: int) -> ForkServer:
    made = ForkServer("program", None, Path("/nowhere"))  # type: ignore[arg-type]
    made.memory = memory
    return made


def level(memory: int) -> Level:
    one, other = server(memory), server(0)
    return Level("warm", "maker", (), Path("/nowhere"), [], one, other, {})  # type: ignore[arg-type]


def profile(
    key: str, *, ago: float = 0.0, worth: int = 1, warm: int = 0, torch: bool = True
) -> CudaProfile:
    """One that holds 1 GB, and ``warm`` bytes more, and was used some seconds ago."""
    toolchain: Any = None
    plan: Any = None
    made = CudaProfile(key, toolchain, [], torch, (), (), plan, "", {}, state="ready")
    made.lean = level(GB)
    made.used = time.monotonic() - ago
    made.asked = worth
    if warm:
        made.warm[("torch/extension.h",)] = level(warm)
    return made


def wanted(asked: int) -> CudaProfile:
    made = profile("wanted", worth=asked)
    made.state, made.lean = "building", None
    return made


def names(profiles: list[CudaProfile]) -> list[str]:
    return [one.key for one in profiles]


def test_nothing_goes_where_there_is_room() -> None:
    going = room.needed([profile("a"), profile("b")], wanted(1), ahead=GB, limit=9 * GB)
    assert going == room.Going()


def test_forks_ahead_go_first() -> None:
    going = room.needed([profile("a")], wanted(1), ahead=GB, limit=2 * GB)
    assert (going.ahead, going.levels, going.profiles) == (True, [], [])


def test_what_is_in_use_stays_for_what_was_wanted_once() -> None:
    used = profile("a", ago=10.0)
    with pytest.raises(room.NoRoom, match="cuda_memory"):
        room.needed([used], wanted(1), ahead=0, limit=GB)


def test_where_a_unit_waits_what_is_quickly_back_goes() -> None:
    """What was used least recently, its warm levels first, and nothing that a unit is compiled
    with at the moment."""
    busy, older = (
        profile("busy", ago=40.0, worth=9, warm=GB),
        profile("older", ago=30.0, worth=9, warm=GB),
    )
    old, grown = profile("old", ago=20.0, worth=9), profile("grown", ago=10.0, worth=9, warm=GB)
    have = [grown, old, older, busy]

    def goes(limit: int) -> tuple[list[str], list[str]]:
        going = room.needed(have, wanted(1), ahead=0, limit=limit * GB, waits=True)
        return names(going.levels), names(going.profiles)

    with busy.in_use():
        assert goes(7) == (["older"], [])
        assert goes(5) == (["older"], ["older", "old"])
        assert goes(4) == (["older", "grown"], ["older", "old"])
        with pytest.raises(room.NoRoom):
            goes(2)
    assert goes(7) == (["busy"], [])


def test_for_a_warm_level_goes_what_was_wanted_far_less_often() -> None:
    often, seldom = profile("often", worth=40), profile("seldom", ago=9.0, worth=10)
    rarely, fairly = profile("rarely", ago=8.0, worth=3), profile("fairly", ago=99.0, worth=11)
    have = [often, seldom, rarely, fairly]

    def goes(limit: int) -> list[str]:
        going = room.needed(have, often, size=2 * GB, ahead=0, limit=limit * GB)
        return names(going.profiles)

    assert goes(6) == []
    assert goes(5) == ["seldom"]
    assert goes(4) == ["seldom", "rarely"]
    with pytest.raises(room.NoRoom):
        goes(3)
    with seldom.in_use():
        assert goes(5) == ["rarely"]


def test_what_was_wanted_less_often_goes_for_what_was_wanted_more() -> None:
    often, once = profile("often", ago=20.0, worth=9), profile("once", ago=10.0, worth=1)
    going = room.needed([often, once], wanted(2), ahead=0, limit=2 * GB)
    assert names(going.profiles) == ["once"]


def test_the_least_recently_used_goes_first() -> None:
    old, older = profile("old", ago=700.0, worth=9), profile("older", ago=800.0, worth=9)
    going = room.needed([old, older], wanted(1), ahead=0, limit=2 * GB)
    assert names(going.profiles) == ["older"]


def test_a_warm_level_goes_before_a_profile() -> None:
    old = profile("old", ago=700.0, warm=3 * GB)
    going = room.needed([old], wanted(1), ahead=0, limit=4 * GB)
    assert (names(going.levels), going.profiles) == (["old"], [])


def test_what_would_not_fit_even_so_costs_nothing() -> None:
    """All that may go is less than what is needed: it stays."""
    old, used = profile("old", ago=700.0), profile("used", worth=5)
    with pytest.raises(room.NoRoom):
        room.needed([old, used], used, ahead=GB, limit=3 * GB)


def test_there_are_not_too_many() -> None:
    many = [profile(str(n), ago=700.0 + n) for n in range(room.MOST)]
    going = room.needed(many, wanted(1), ahead=0, limit=99 * GB)
    assert names(going.profiles) == [str(room.MOST - 1)]
    with pytest.raises(room.NoRoom):
        room.needed(
            [profile(str(n)) for n in range(room.MOST)],
            wanted(1),
            ahead=0,
            limit=99 * GB,
        )


def test_a_bare_level_needs_little() -> None:
    used = profile("used")
    going = room.needed([used], used, size=room.BARE_BYTES, ahead=0, limit=GB + room.BARE_BYTES)
    assert going == room.Going()


def test_what_another_has_as_well_is_not_needed_again() -> None:
    used = profile("used")
    going = room.needed([used], wanted(1), missing=0.5, ahead=0, limit=GB + GB // 2)
    assert going == room.Going()
    with pytest.raises(room.NoRoom):
        room.needed([used], wanted(1), missing=0.6, ahead=0, limit=GB + GB // 2)


def test_what_two_have_counts_once_and_goes_with_the_last() -> None:
    """And what goes before gives nothing back."""
    one, other = profile("one", ago=800.0, worth=9), profile("other", ago=700.0, worth=9)
    other.lean = one.lean
    assert room.held([one, other]) == GB
    going = room.needed([one, other], wanted(1), ahead=0, limit=2 * GB)
    assert going == room.Going()
    going = room.needed([one, other], wanted(1), ahead=0, limit=GB)
    assert names(going.profiles) == ["one", "other"]
