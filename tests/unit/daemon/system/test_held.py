"""What runs in the background stands still for a moment when a client has come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.daemon.system.test_background import in_background, stopped, until, workers
from warmcc.daemon.system import background
from warmcc.daemon.system.background import Background, Haste
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished

LONG = 0.4


@pytest.fixture(autouse=True)
def long_pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Long enough to be seen."""
    monkeypatch.setattr(background, "HELD_SECONDS", LONG)
    yield


def test_it_stands_still_for_a_moment(tmp_path: Path) -> None:
    async def play(place: Background, _: Permits, __: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        began = time.monotonic()
        place.greeted()
        await until(lambda: stopped(tmp_path) == {True})
        await until(lambda: stopped(tmp_path) == {False})
        assert time.monotonic() - began >= LONG

    assert in_background(tmp_path, play).code == 0


def test_clients_in_a_row_do_not_keep_it_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(place: Background, _: Permits, __: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        place.greeted()
        await until(lambda: stopped(tmp_path) == {True})
        await until(lambda: stopped(tmp_path) == {False})
        place.greeted()
        await asyncio.sleep(LONG / 4)
        assert stopped(tmp_path) == {False}

    monkeypatch.setattr(background, "_HELD_AGAIN_SECONDS", 60.0)
    assert in_background(tmp_path, play).code == 0


def test_what_a_build_stops_meanwhile_does_not_go_on(tmp_path: Path) -> None:
    async def play(place: Background, permits: Permits, _: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        (step,) = place._steps
        place.greeted()
        await until(lambda: stopped(tmp_path) == {True})
        async with permits.hold(Share("somebody", 1)):
            await until(lambda: step._stopped_at is not None)
            await asyncio.sleep(2 * LONG)
            assert stopped(tmp_path) == {True}
        await until(lambda: stopped(tmp_path) == {False})

    assert in_background(tmp_path, play).code == 0


def test_what_is_signalled_when_the_moment_is_over_goes_on_later(tmp_path: Path) -> None:
    async def play(place: Background, _: Permits, __: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        (step,) = place._steps
        place.greeted()
        await until(lambda: stopped(tmp_path) == {True})
        with step._lock:  # as a thread that signals it
            await asyncio.sleep(2 * LONG)
        await until(lambda: stopped(tmp_path) == {False})

    assert in_background(tmp_path, play).code == 0


def test_what_becomes_a_server_meanwhile_goes_on(tmp_path: Path) -> None:
    async def play(place: Background, _: Permits, __: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        (step,) = place._steps
        place.greeted()
        await until(lambda: stopped(tmp_path) == {True})
        began = time.monotonic()
        step.end()
        await until(lambda: stopped(tmp_path) == {False})
        assert time.monotonic() - began < LONG

    assert in_background(tmp_path, play).code == 0


def test_what_somebody_waits_for_goes_on(tmp_path: Path) -> None:
    async def play(place: Background, _: Permits, __: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        place.greeted()
        await asyncio.sleep(LONG / 4)
        assert stopped(tmp_path) == {False}

    assert in_background(tmp_path, play, haste=Haste(wanted=True)).code == 0
