"""A unit's preprocessors and front ends, forked behind a prelude: from its text to PTX, and to what
cudafe++ writes for the host's compiler.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path

from warmcc.daemon.build.work import Work
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.exact.command import source
from warmcc.daemon.cuda.overlay import overlay, warnings
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.unit_text import certain, macros
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.fork_servers import ForkServer, Served
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import ninja
from warmcc.daemon.toolchain.flags import split

STEP_SECONDS = 300.0
CUDAFE, CICC = "cudafe++", "cicc"  # the front ends, for the host and a device
_ERROR = re.compile(r"^(\S[^\n]*?)\(\d+\): ((?:catastrophic |internal |fatal )?error)\b", re.M)
_FILES = re.compile(r'^\s*\.file\s+\d+\s+"([^"]*)"', re.M)
_COUNTED = f'in the compilation of "{dryrun.UNIT}".'  # how many errors there were
_UNIT_FOLDER = "/warmcc.unit"  # in kept PTX, where its unit is
# What a module binds is the host's: for the devices it is a template that nobody instantiates.
_NO_MODULE = (
    "#ifndef PYBIND11_MODULE\n#define PYBIND11_MODULE(name, variable, ...) "
    "template <typename warmcc_module> void warmcc_binds(warmcc_module &variable)\n#endif\n"
)
# How g++ says that a unit's own lines are included, which in nvcc's plan they are not
_FROM = rf"from {levels.BEGIN}:\d+(?::\d+)?,\n +from {levels.MAIN}:\d+(?::\d+)?"
_INCLUDED = re.compile(rf"^In file included {_FROM}:\n|,\n +{_FROM}(?=:)", re.M)
_NAME_DEFINE = re.compile(r"-DTORCH_EXTENSION_NAME=(\S+)")


class Fell(Exception):
    """A level could not compile a unit; the text says which step, ``output`` what it printed.
    ``final`` when nvcc would say the same, as the step saw what it would see, and complained of the
    user's own lines. ``code``: the step's, with which nvcc would end."""

    def __init__(self, step: str, output: str = "", *, code: int = 1, final: bool = False) -> None:
        super().__init__(step)
        self.step = step
        self.output = output
        self.code = code
        self.final = final


class FrontEnds:
    """Those of one unit at one level. ``text`` is the unit's own; ``module_id`` names its part of
    anonymous namespaces; ``new`` are steps that may be kept: what they wrote, by name, by key."""

    def __init__(
        self, work: Work, unit: Unit, text: str, profile: CudaProfile, level: Level,
        runner: Runner, steps: StepCache, module_id: str,
    ) -> None:  # fmt: skip
        self._work = work
        self._unit = unit
        self._text = text
        self._profile = profile
        self._level = level
        self._runner = runner
        self._steps = steps
        self._module_id = module_id
        toolkit = profile.toolchain.cuda
        self._toolkit = toolkit.digest if toolkit is not None else ""
        self.new: dict[str, dict[str, bytes]] = {}

    async def both(self, folder: Path) -> str:
        """Preprocess, and compile for the host and all devices side by side, into one folder: what
        they print. Raises Fell, ServerDied, OSError."""
        self._level.served += 1
        # in nvcc's order, in which the first that fails has the word
        printed = await self._all([self.host(folder), *self._devices(folder)])
        await asyncio.to_thread(_gather, folder)
        return printed

    async def host(self, folder: Path) -> str:
        """For the host alone, in a folder of its own. Raises as ``both``."""
        level, words = self._level, self._profile.plan.cudafe.words
        return await self._one(folder / "host", level.preprocessor, level.cudafe, CUDAFE, words)

    async def devices(self, folder: Path) -> str:
        """For the devices alone, each in a folder of its own. Raises as ``both``."""
        return await self._all(self._devices(folder))

    def read(self, folder: Path) -> set[str]:
        """The files that preprocessors read of the unit's own."""
        found: set[str] = set()
        for place in folder.glob("*/user.d"):
            found.update(ninja.dependencies(place, place.parent))
        return found

    @property
    def definitions(self) -> str:
        """Macros of the flags that the profile does without, as text."""
        plan = self._work.plan
        return macros.definitions(
            split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}"), self._profile.flags
        )

    def _devices(self, folder: Path) -> list[Coroutine[None, None, str]]:
        return [
            self._one(
                folder / one.architecture, *self._level.devices[one.architecture],
                CICC, one.cicc.words,
            )
            for one in self._profile.plan.devices
        ]  # fmt: skip

    @staticmethod
    async def _all(ways: list[Coroutine[None, None, str]]) -> str:
        tasks = [asyncio.create_task(way) for way in ways]
        printed = ""
        try:
            for task in tasks:
                printed += await task
            return printed
        except Fell as fell:
            fell.output = printed + fell.output  # warnings come in front of errors
            raise
        finally:  # where one failed, the others' forks are of no use, and their folder may go away
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(
        self, folder: Path, preprocessor: ForkServer, compiler: ForkServer, step: str,
        words: list[str],
    ) -> str:  # fmt: skip
        on_host = step != CICC
        fronts = self._level.front if on_host else self._level.devices_front
        await asyncio.to_thread(self._place, folder, fronts, on_host=on_host)
        preprocessed = await self._served(preprocessor, folder, "preprocessor")
        read = [folder / levels.TEXT, folder / dryrun.MODULE_ID]
        if step != CICC:
            return preprocessed.output + await self._behind(preprocessed, compiler, folder, step)
        key = await asyncio.to_thread(self._steps.key, words, read, self._toolkit, compiler.prelude)
        if await asyncio.to_thread(self._steps.find, key, folder, step):
            await asyncio.to_thread(self._name_unit, folder)
            return preprocessed.output
        before = set(os.listdir(folder))
        compiled = await self._behind(preprocessed, compiler, folder, step)
        await asyncio.to_thread(self._without_folder, folder)
        if not compiled:  # what warns is compiled again, to warn again
            names = set(os.listdir(folder)) - before - {"log"}
            self.new[key] = {name: (folder / name).read_bytes() for name in sorted(names)}
        await asyncio.to_thread(self._name_unit, folder)
        return preprocessed.output + compiled

    async def _behind(
        self, preprocessed: Served, compiler: ForkServer, folder: Path, step: str
    ) -> str:
        """What a front end prints. Raises Fell with what the preprocessor printed in front."""
        try:
            return (await self._served(compiler, folder, step)).output
        except Fell as fell:
            fell.output = preprocessed.output + fell.output
            raise

    def _without_folder(self, folder: Path) -> None:
        """Take the folder out of the names of files in PTX, which are there with ``-lineinfo``.
        Raises Fell where these are in the overlay, whose lines are not the headers'."""
        for path, text in _ptx(folder):
            files = _FILES.findall(text)
            if any(name.startswith(tuple(self._level.devices_front)) for name in files):
                raise Fell("the lines of the lean prelude are not the headers'")
            if files:
                path.write_text(
                    text.replace(f'"{folder}/', f'"{_UNIT_FOLDER}/'),
                    encoding="utf-8",
                    errors="surrogateescape",
                )

    def _name_unit(self, folder: Path) -> None:
        """Name the unit in PTX as nvcc would."""
        for path, text in _ptx(folder):
            if _UNIT_FOLDER in text:
                own = f'"{os.path.realpath(self._work.folder)}/'
                _write(path, text.replace(f'"{_UNIT_FOLDER}/', own))

    def _place(self, folder: Path, fronts: list[str], *, on_host: bool) -> None:
        unit, work = self._unit, self._work
        name = _NAME_DEFINE.search(work.plan.cuda_cflags)
        lines = [f"#define TORCH_EXTENSION_NAME {name[1]}\n"] if name else []
        definitions, text = self.definitions, self._text
        for front in fronts:
            found = overlay.mentioned(Path(front), definitions + text, on_host=on_host)
            lines += [f"#include <{header}>\n" for header in found]
        prologue = _NO_MODULE if fronts and not on_host else ""
        if unit.text is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / unit.source).write_text(unit.text, encoding="utf-8", newline="")
        levels.place_unit(folder, "".join(lines) + definitions + prologue, unit.source)
        (folder / dryrun.MODULE_ID).write_text(self._module_id)

    async def _served(self, server: ForkServer, folder: Path, step: str) -> Served:
        with self._timed(step):
            served = await server.run(folder, STEP_SECONDS)
        fronts = {*self._level.front, *self._level.devices_front}
        said = _INCLUDED.sub("", warnings.left_out(served.output, fronts))
        served = replace(served, output=said)
        if served.code != 0:
            final = served.code > 0 and await self._is_final(step, served.output, folder)
            named = f'in the compilation of "{source(self._work, self._unit)}".'
            said = served.output.replace(_COUNTED, named)
            raise Fell(step, said, code=served.code, final=final)
        return served

    async def _is_final(self, step: str, output: str, folder: Path) -> bool:
        """Whether nvcc would say the same of what was refused in a folder."""
        level = self._level
        if step != CUDAFE and level.lender is not None:  # whose front ends the devices have
            level = level.lender
        if level.name != "lean":
            host = self._profile.host
            return host is not None and _of_users(output, host.read)
        known = {CUDAFE: certain.is_certain, CICC: certain.is_certain_for_devices}
        if step not in known or (step == CICC and len(self._profile.plan.devices) > 1):
            return False  # several devices: their headers would be preprocessed for each
        with contextlib.suppress(OSError), self._timed("is the error certain"):
            refused = certain.Unit(
                self._profile, level, self.definitions, self._text, self._runner, folder
            )
            return await known[step](refused, output)
        return False

    def _timed(self, step: str) -> contextlib.AbstractContextManager[None]:
        return self._work.timeline.span(step, f"{step} {self._unit.source}")


def _of_users(output: str, headers: frozenset[str]) -> bool:
    """Whether all errors are in lines that no header of the prelude has."""
    errors = _ERROR.findall(output)
    return bool(errors) and all(kind == "error" and path not in headers for path, kind in errors)


def _ptx(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.glob("*.ptx"):
        yield path, path.read_text(encoding="utf-8", errors="surrogateescape")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _gather(folder: Path) -> None:
    """Put what the front ends wrote into one folder, where nvcc's plan looks for it."""
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        for made in part.glob("cuda.*"):
            if made.name != dryrun.UNIT:
                made.replace(folder / made.name)
