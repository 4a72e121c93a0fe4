"""Levels share the servers that have read the same, in front of gcc's own preprocessor: it stands
for a front end, as it reads what it is given in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from warmcc.daemon.cuda.dryrun import Cudafe, Fatbinary, NvccCommand, NvccPlan
from warmcc.daemon.cuda.warm import level
from warmcc.daemon.cuda.warm.fork_servers import ForkServer, ServerDied, ServerLibrary
from warmcc.daemon.cuda.warm.level import BEGIN, Level, Recipe
from warmcc.daemon.cuda.warm.pool import Pool
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner

Life = Callable[[Recipe], Coroutine[Any, Any, None]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def recipe(base: Recipe, *, preprocessor: str = "-DA=1", front_end: str = "-DB=1") -> Recipe:
    """With other words for one of the programs."""
    reading = ["gcc", "-E", "-x", "c++", preprocessor, "unit.cu", "-o", "unit.ii"]
    step = NvccCommand.of(reading)
    words = ["gcc", "-E", "-x", "c++", front_end, "unit.ii"]
    plan = NvccPlan(step, Cudafe(words, step.output, "", ""), (), Fatbinary([], (), ()), step)
    return replace(base, plan=plan)


def live(folder: Path, life: Life) -> None:
    """Run what is done with a recipe for levels behind <vector>."""
    runner = Runner()

    async def prepared() -> None:
        environment = {"PATH": os.environ["PATH"]}
        library = await ServerLibrary(folder / "library", runner).path("gcc", environment)
        plan: Any = None
        await life(
            Recipe(
                "lean", "maker", ("vector",), [], plan, "programs", environment, library, runner,
                folder / "servers", Pool(),
            )
        )  # fmt: skip

    with contextlib.closing(runner):
        asyncio.run(prepared())
    assert not list((folder / "servers").iterdir()) and not list((folder / "run").iterdir())


async def started(one: Recipe) -> Level:
    return await level.start(one, Haste(wanted=True))


def test_words_that_no_server_has_need_nothing_new(folder: Path) -> None:
    async def life(base: Recipe) -> None:
        one = recipe(base)
        assert one.missing == 1.0
        first = await started(one)
        assert one.missing == 0.0
        second = await started(one)
        assert second.servers == first.servers and second.size == first.size
        assert first.size > 1_000_000 and 2 * first.memory <= first.size
        await first.close()
        assert second.alive and second.memory == second.size
        await second.close()
        assert not second.alive and one.missing == 1.0

    live(folder, life)


def test_an_empty_unit_is_compiled_once_for_a_server(folder: Path) -> None:
    """Here by a preprocessor, which prints its text, and of the prelude before it is asked."""

    async def life(base: Recipe) -> None:
        one = recipe(base)
        plan = replace(one.plan, cudafe=replace(one.plan.cudafe, text="log"))
        first, second = await started(one), await started(one)
        prologue = await level.empty_unit(first, plan)
        assert prologue == (first.folder / "empty/log").read_text() and BEGIN in prologue
        assert await level.empty_unit(second, plan) == prologue
        assert not (second.folder / "empty").exists(), "the same server has told"
        await first.close()
        await second.close()
        third = await started(recipe(base, front_end="-DB=2"))
        third.cudafe.let_go()
        await third.cudafe.close()
        with pytest.raises(ServerDied):
            await level.empty_unit(third, plan)
        await third.close()

    live(folder, life)


def test_other_words_need_a_server_of_their_own(folder: Path) -> None:
    async def life(base: Recipe) -> None:
        first = await started(recipe(base))
        second = await started(recipe(base, front_end="-DB=2"))
        assert second.preprocessor is first.preprocessor and second.cudafe is not first.cudafe
        # What the preprocessor leaves out is in no text
        third = await started(recipe(base, preprocessor="-DA=2"))
        assert third.preprocessor is not first.preprocessor and third.cudafe is first.cudafe
        fourth = await started(recipe(base, preprocessor="-D_GLIBCXX_DEBUG"))
        assert fourth.cudafe not in (first.cudafe, second.cudafe)
        others = [
            await started(replace(recipe(base), **change))
            for change in ({"programs": "of another toolchain"}, {"headers": ("vector", "map")})
        ]
        for one in others:
            assert not set(one.servers) & set(first.servers)
        for one in (first, second, third, fourth, *others):
            await one.close()

    live(folder, life)


def test_who_comes_while_it_is_being_started_waits_for_it(folder: Path) -> None:
    """And where the first one gives up, starts one."""

    async def life(base: Recipe) -> None:
        one = recipe(base)
        first, second, third = (asyncio.create_task(started(one)) for _ in range(3))
        await asyncio.sleep(0.005)
        first.cancel()
        levels = [await second, await third]
        assert levels[0].servers == levels[1].servers and levels[0].alive
        with pytest.raises(asyncio.CancelledError):
            await first
        for made in levels:
            await made.close()

    live(folder, life)


def test_haste_reaches_a_start_that_gives_way(folder: Path) -> None:
    async def life(base: Recipe) -> None:
        pool, seen = Pool(), list[Haste]()
        go = asyncio.Event()

        async def start(haste: Haste) -> ForkServer:
            seen.append(haste)
            await go.wait()
            return ForkServer("never started", base.runner, folder / "none")

        slow, quick = Haste(), Haste(wanted=True)
        taking = [asyncio.create_task(pool.take("key", slow, start, "hint"))]
        await asyncio.sleep(0)
        assert not seen[0].wanted
        taking.append(asyncio.create_task(pool.take("key", quick, start, "hint")))
        await asyncio.sleep(0)
        assert seen[0].wanted
        go.set()
        for task in taking:
            await task

    (folder / "servers").mkdir()
    live(folder, life)


def test_a_dead_server_is_replaced_for_both(folder: Path) -> None:
    async def life(base: Recipe) -> None:
        one = recipe(base)
        first, second = await started(one), await started(one)
        heard: list[str] = []
        for name, made in (("first", first), ("second", second)):
            made.cudafe.on_death(lambda name=name: heard.append(name))  # type: ignore[misc]
        assert first.cudafe._life is not None
        first.cudafe._life.cancel()
        await asyncio.sleep(0.1)
        assert heard == ["first", "second"] and not first.alive and not second.alive
        third = await started(one)
        assert third.alive and third.preprocessor is first.preprocessor
        assert third.cudafe is not first.cudafe
        await first.close()
        await second.close()
        assert third.alive
        await third.close()

    live(folder, life)


def test_what_cannot_start_leaves_nothing(folder: Path) -> None:
    async def life(base: Recipe) -> None:
        broken = replace(recipe(base), headers=("vector",), front=[])
        words = ["gcc", "--no-such-option", "unit.ii"]
        assert broken.plan is not None
        cudafe = Cudafe(words, broken.plan.preprocess.output, "", "")
        broken = replace(broken, plan=replace(broken.plan, cudafe=cudafe))
        with pytest.raises(ServerDied, match="no-such-option"):
            await started(broken)
        working = await started(recipe(base))
        await working.close()

    live(folder, life)
