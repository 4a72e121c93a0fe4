"""Work in the background gives way to builds, with real processes that are really stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from warmcc.daemon.system import background
from warmcc.daemon.system.background import QUIET_SECONDS, Background, Haste, Step
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished, Runner

# A command with a child in a process group of its own, as ninja has them; both go on for as long as
# there is the file.
WORK = (
    "set -m; (while [ -e run ]; do sleep 0.02; done) & echo started; while [ -e run ]; do "
    "sleep 0.02; done; wait"
)
Play = Callable[[Background, Permits, asyncio.Task[Finished]], Awaitable[None]]


def in_background(
    folder: Path, play: Play, *, limit: int = 2, timeout: float = 60.0, haste: Haste | None = None
) -> Finished:
    """Have the work run as a step while something is played; then let it end."""

    async def run() -> Finished:
        permits = Permits(limit, 1)
        place = Background(permits)
        giving_way = asyncio.create_task(place.run())
        (folder / "run").touch()
        with contextlib.closing(Runner(background=place)) as runner:
            started = asyncio.Event()

            async def work() -> Finished:
                with place.step() as step:
                    if haste is not None:
                        haste.runs(step)
                    return await runner.run(
                        ["/bin/bash", "-c", WORK], cwd=folder, environment=dict(os.environ),
                        timeout=timeout, step=step, on_line=lambda _: started.set(),
                    )  # fmt: skip

            task = asyncio.create_task(work())
            await started.wait()
            try:
                await play(place, permits, task)
            finally:
                (folder / "run").unlink()
                done = await task
                giving_way.cancel()
                await asyncio.gather(giving_way, return_exceptions=True)
        return done

    return asyncio.run(run())


def workers(folder: Path) -> list[psutil.Process]:
    """The two that loop."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder) and process.name() == "bash":
                found.append(process)
    return found


def stopped(folder: Path) -> set[bool]:
    return {process.status() == psutil.STATUS_STOPPED for process in workers(folder)}


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to that")


def test_it_stands_still_while_somebody_waits_for_a_build(tmp_path: Path) -> None:
    async def play(place: Background, permits: Permits, _: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        assert stopped(tmp_path) == {False}
        async with permits.hold(Share("somebody", 1)):
            await until(lambda: stopped(tmp_path) == {True})
        await until(lambda: stopped(tmp_path) == {False})

    assert in_background(tmp_path, play).code == 0


def test_what_somebody_else_wakes_stands_still_again(tmp_path: Path) -> None:
    async def play(place: Background, permits: Permits, _: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        async with permits.hold(Share("somebody", 1)):
            await until(lambda: stopped(tmp_path) == {True})
            for process in workers(tmp_path):
                process.resume()
            await until(lambda: stopped(tmp_path) == {True})

    assert in_background(tmp_path, play).code == 0


@pytest.mark.parametrize("late", [False, True])
def test_work_that_somebody_waits_for_goes_on(tmp_path: Path, late: bool) -> None:
    haste = Haste()
    if not late:
        haste.want()

    async def play(place: Background, permits: Permits, _: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        async with permits.hold(Share("somebody", 1)):
            if late:
                await until(lambda: stopped(tmp_path) == {True})
                haste.want()
            await asyncio.sleep(0.3)
            assert stopped(tmp_path) == {False}

    assert in_background(tmp_path, play, haste=haste).code == 0


@pytest.mark.parametrize("late", [False, True])
def test_haste_reaches_work_that_others_want_too(late: bool) -> None:
    mine, shared = Haste(), Haste()
    if not late:
        mine.want()
    mine.reaches(shared)
    mine.reaches(mine)
    assert shared.wanted is not late
    mine.want()
    assert shared.wanted


def test_work_that_somebody_waits_for_has_other_work_stop(tmp_path: Path) -> None:
    """With one step of a build on two processors, as it is while a unit waits."""

    async def play(place: Background, permits: Permits, _: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        async with permits.hold(Share("somebody", 4)):
            await asyncio.sleep(0.3)
            assert stopped(tmp_path) == {False}
            with place.step() as other:
                haste = Haste()
                haste.runs(other)
                haste.want()
                await until(lambda: stopped(tmp_path) == {True})
            await until(lambda: stopped(tmp_path) == {False})

    assert in_background(tmp_path, play, limit=4).code == 0


def test_what_nobody_waits_for_now_leaves_a_build_alone(tmp_path: Path) -> None:
    haste = Haste(wanted=True)

    async def play(place: Background, permits: Permits, _: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        share = Share("somebody", 1)
        async with permits.hold(share):
            with place.alone():
                await until(lambda: stopped(tmp_path) == {True})
                async with permits.apart(share):  # it waits: perhaps for this
                    await until(lambda: stopped(tmp_path) == {False})
                await until(lambda: stopped(tmp_path) == {True})
            await until(lambda: stopped(tmp_path) == {False})

    assert in_background(tmp_path, play, haste=haste).code == 0


@pytest.mark.parametrize(("limit", "begins"), [(4, False), (18, True)])
def test_work_begins_beside_a_build_that_leaves_room(limit: int, begins: bool) -> None:
    async def play() -> None:
        permits = Permits(limit, 0)
        place = Background(permits)
        share = Share("somebody", limit)
        async with permits.hold(share), permits.hold(share):
            quiet = asyncio.create_task(place.quiet())
            await asyncio.wait([quiet], timeout=QUIET_SECONDS + 1.0)
            assert quiet.done() is begins
        await quiet

    asyncio.run(play())


def test_on_many_processors_one_build_is_not_in_its_way(tmp_path: Path) -> None:
    async def play(place: Background, permits: Permits, _: asyncio.Task[Finished]) -> None:
        share = Share("somebody", 8)
        async with permits.hold(share), permits.hold(share):
            await asyncio.sleep(0.3)
            assert stopped(tmp_path) == {False}
            async with permits.hold(share):
                await until(lambda: stopped(tmp_path) == {True})

    assert in_background(tmp_path, play, limit=8).code == 0


def test_it_stands_still_for_a_moment_after_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "CALM_SECONDS", 3.0)

    async def play(place: Background, _: Permits, task: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        place.answered()
        await until(lambda: stopped(tmp_path) == {True})
        await until(lambda: stopped(tmp_path) == {False})

    assert in_background(tmp_path, play).code == 0


def test_it_stands_still_while_stock_builds_in_a_clients_process(tmp_path: Path) -> None:
    """On any number of processors: how many stock uses is not known."""

    async def play(place: Background, _: Permits, task: asyncio.Task[Finished]) -> None:
        await until(lambda: len(workers(tmp_path)) == 2)
        for client in (b"one", b"another"):
            place.elsewhere(client, builds=True)
        await until(lambda: stopped(tmp_path) == {True})
        place.elsewhere(b"one", builds=False)
        await asyncio.sleep(2.5)
        assert stopped(tmp_path) == {True}
        place.elsewhere(b"another", builds=False)
        await until(lambda: stopped(tmp_path) == {False})

    assert in_background(tmp_path, play, limit=64).code == 0


@pytest.mark.parametrize(("limit", "beside"), [(3, 0), (4, 1), (18, 2), (66, 8)])
def test_beside_a_build_only_what_began_first_goes_on(limit: int, beside: int) -> None:
    """Caches and memory are everyone's, however many processors there are."""

    async def play() -> None:
        permits = Permits(limit, 0)
        place = Background(permits)
        with contextlib.ExitStack() as stack:
            steps = [stack.enter_context(place.step()) for _ in range(10)]
            assert place._in_the_way() == set()
            asked = 0
            late = stack.enter_context(place.step(lambda: asked))
            async with permits.hold(Share("somebody", limit)):
                assert place._in_the_way() == {*steps[beside:], late}
                steps[0].end()
                assert place._in_the_way() == {*steps[1 + beside :], late}, "the next one goes on"
                asked = 1
                first = [late, *steps[1:]]
                assert place._in_the_way() == set(first[beside:]), "what a caller has missed"
            assert place._in_the_way() == set()

    asyncio.run(play())


def test_it_is_finished_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is always a build."""
    monkeypatch.setattr(background, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(background, "SLICE_SECONDS", 0.3)

    async def play(place: Background, permits: Permits, task: asyncio.Task[Finished]) -> None:
        async with permits.hold(Share("somebody", 1)):
            await until(lambda: stopped(tmp_path) == {True})
            (tmp_path / "run").unlink()
            assert (await task).code == 0
        (tmp_path / "run").touch()

    assert in_background(tmp_path, play).code == 0


def test_its_clock_stands_still_with_it(tmp_path: Path) -> None:
    async def play(place: Background, permits: Permits, task: asyncio.Task[Finished]) -> None:
        async with permits.hold(Share("somebody", 1)):
            await until(lambda: stopped(tmp_path) == {True})
            await asyncio.sleep(2.5)  # longer than it may take

    done = in_background(tmp_path, play, timeout=2.0)
    assert (done.code, done.timed_out) == (0, False)


def test_its_clock_goes_on_while_it_runs(tmp_path: Path) -> None:
    async def play(place: Background, permits: Permits, task: asyncio.Task[Finished]) -> None:
        await task

    assert in_background(tmp_path, play, timeout=0.5).timed_out


def test_what_is_cancelled_while_it_is_stopped_is_gone(tmp_path: Path) -> None:
    async def play(place: Background, permits: Permits, task: asyncio.Task[Finished]) -> None:
        async with permits.hold(Share("somebody", 1)):
            await until(lambda: stopped(tmp_path) == {True})
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert workers(tmp_path) == []

    with pytest.raises(asyncio.CancelledError):
        in_background(tmp_path, play)


def test_what_has_ended_as_a_step_is_never_stopped(tmp_path: Path) -> None:
    """A fork server gives way while it starts; then builds wait for it."""

    async def play(place: Background, permits: Permits, task: asyncio.Task[Finished]) -> None:
        (step,) = place._steps
        async with permits.hold(Share("somebody", 1)):
            await until(lambda: stopped(tmp_path) == {True})
            step.end()
            await until(lambda: stopped(tmp_path) == {False})
            step.signal(stop=True)
            assert stopped(tmp_path) == {False}

    assert in_background(tmp_path, play).code == 0


def test_nothing_gives_way_without_a_command() -> None:
    step = Step()
    step.signal(stop=True)
    time.sleep(0.01)
    assert step.lost == 0.0
