"""Which host's prelude serves callers with copies of its headers: judged by a real preprocessor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.closures import let_the_clock_tick
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.warm import host_text
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.host_pch import HostPrelude, Making
from warmcc.daemon.cuda.warm.host_same import SameText
from warmcc.daemon.cuda.warm.host_text import Recipe, Run, Said
from warmcc.daemon.store.store import Store
from warmcc.daemon.system.background import Background, Haste
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Runner

HEADER = "#pragma once\n#include <part.h>\ninline const char* here() { return __FILE__; }\n"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


class Toolkit:
    """A toolkit with the headers ``base.h`` and ``part.h``, and a caller's copy of the first."""

    def __init__(self, root: Path, runner: Runner) -> None:
        self.theirs, self.copies, self.root = root / "theirs", root / "copies", root / "host"
        for folder in (self.theirs, self.copies, self.root):
            folder.mkdir()
        (self.theirs / "base.h").write_text(HEADER)
        (self.theirs / "part.h").write_text("#pragma once\nint part;\n")
        (self.copies / "base.h").write_text(HEADER)
        store = Store(root / "store", 1 << 30)
        self.watch = HeaderWatch(store.get_headers)
        self.closures = Closures(store, self.watch)
        self.runner = runner
        self.same = SameText(self.root, self.closures, runner, 60.0)
        let_the_clock_tick()

    def recipe(self, *folders: Path) -> Recipe:
        added = [word for folder in folders for word in ("-I", str(folder))]
        words = ("g++", "-E", "-x", "c++", *added, "-isystem", str(self.theirs))
        unused: Any = None
        step = dryrun.NvccCommand(words, "x.cu", "x.ii")
        plan = dryrun.NvccPlan(step, dryrun.Cudafe((), "", "", ""), (), unused, step)
        searched = [*map(str, folders), str(self.theirs)]
        return Recipe(
            plan, "toolchain", [str(self.theirs)], searched, ENVIRONMENT, None, ("base.h",), ()
        )

    async def base(self) -> HostPrelude:
        """The prelude of callers without folders, as ``host_pch.py`` would find it."""
        recipe, folder = self.recipe(), self.root / "made"
        folder.mkdir(exist_ok=True)
        marker = Marker.take(folder)
        run = Run(self.runner, folder, ENVIRONMENT, Haste(), 60.0)
        await host_text.preprocess(recipe, run)
        text, read = host_text.preprocessed(recipe.plan, folder), host_text.read(folder)
        closure = self.closures.record(
            read, recipe.roots, recipe.searched, marker, ignore=[str(self.root)]
        )
        return HostPrelude(
            folder / "prelude.h", levels.files(text), [], Said.by(text), closure,
            frozenset(read), host_text.names(read, recipe.searched), Making.done("digest"),
        )  # fmt: skip

    async def serving(
        self, base: HostPrelude, recipe: Recipe, haste: Haste | None = None
    ) -> HostPrelude | None:
        return await self.same.serving(base, recipe, [str(self.copies)], haste or Haste())


@pytest.fixture
def toolkit(tmp_path: Path) -> Iterator[Toolkit]:
    with contextlib.closing(Runner()) as runner:
        found = Toolkit(tmp_path, runner)
        yield found
        found.watch.close()


@pytest.mark.parametrize("way", ["-I", "CPATH"])
def test_the_callers_files_are_those_of_the_prelude(toolkit: Toolkit, way: str) -> None:
    recipe = toolkit.recipe(toolkit.copies)
    if way == "CPATH":
        variables = {**ENVIRONMENT, "CPATH": str(toolkit.copies)}
        recipe = replace(toolkit.recipe(), environment=variables, searched=recipe.searched)

    async def check() -> None:
        base = await toolkit.base()
        found = await toolkit.serving(base, recipe)
        assert found is not None and found.holds(toolkit.closures)
        copy, original = str(toolkit.copies / "base.h"), str(toolkit.theirs / "base.h")
        assert copy in found.read and original not in found.read
        assert {copy, original} <= found.files
        assert found.others == {original}, "a string names it"
        assert found.header == base.header and found.making is base.making

    asyncio.run(check())


@pytest.mark.parametrize("text", [HEADER + "int more;\n", HEADER.replace("part.h", "base.h")])
def test_a_copy_that_says_something_else_does_not_serve(toolkit: Toolkit, text: str) -> None:
    (toolkit.copies / "base.h").write_text(text)

    async def check() -> None:
        assert await toolkit.serving(await toolkit.base(), toolkit.recipe(toolkit.copies)) is None

    asyncio.run(check())


def test_a_unit_that_waits_for_the_answer_does_not_stand_still(tmp_path: Path) -> None:
    """Nor does what has asked the same in the background before it, while builds run."""

    async def check() -> None:
        permits = Permits(2, 1)
        place = Background(permits)
        giving_way = asyncio.create_task(place.run())
        with contextlib.closing(Runner(background=place)) as runner:
            toolkit = Toolkit(tmp_path, runner)
            base, recipe = await toolkit.base(), toolkit.recipe(toolkit.copies)
            async with permits.hold(share := Share("client", 2)), permits.hold(share):
                ahead = asyncio.create_task(toolkit.serving(base, recipe))
                await asyncio.wait([ahead], timeout=1.0)
                assert not ahead.done()
                unit = toolkit.serving(base, recipe, Haste(wanted=True))
                assert await asyncio.wait_for(unit, 30) is not None
                assert await ahead is not None
            toolkit.watch.close()
        giving_way.cancel()
        await asyncio.gather(giving_way, return_exceptions=True)

    asyncio.run(check())


@pytest.mark.parametrize("changed", ["copies/base.h", "theirs/base.h", "copies/part.h"])
def test_it_does_not_hold_once_a_file_changes(toolkit: Toolkit, changed: str) -> None:
    """Also the toolkit's: the prelude would be made again in its place."""

    async def check() -> None:
        base, recipe = await toolkit.base(), toolkit.recipe(toolkit.copies)
        found = await toolkit.serving(base, recipe)
        assert found is not None
        (toolkit.copies.parent / changed).write_text(HEADER + "int more;\n")
        assert not found.holds(toolkit.closures)
        let_the_clock_tick()
        again = await toolkit.base()
        assert await toolkit.serving(again, recipe) is None, "what was found before is forgotten"

    asyncio.run(check())
