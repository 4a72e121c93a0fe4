"""Compile a unit for whose host's half nothing is warm: nvcc's own steps, that half beside the
devices', which the lean prelude's fork servers may make instead (``device_half.py``).

nvcc takes the sum of both halves, and this the longer one, where a second permit is free. The
result is nvcc's: the same programs with the same words, but for the name of the module
(``nvcc_steps.py``). Whatever is not understood, and whatever ends in another way than a compiler's
exit, is left to nvcc.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Literal

from warmcc.daemon.build import failures
from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.cuda.dryrun import UnknownPlan
from warmcc.daemon.cuda.exact import nvcc_steps
from warmcc.daemon.cuda.exact.device_half import DeviceHalf
from warmcc.daemon.cuda.exact.nvcc_steps import HOST, Half, Step, Steps
from warmcc.daemon.cuda.front_ends import CUDAFE
from warmcc.daemon.cuda.tools import Tools
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.permits import Share
from warmcc.daemon.system.runner import Finished
from warmcc.daemon.toolchain import compiler_heap, ninja
from warmcc.daemon.toolchain.nvcc_flags import without_threads

log = logging.getLogger(__name__)

_DRYRUN_SECONDS = 60.0
Doubts = Literal["", "host", "device"]  # which half of a unit may have mistakes


class SideBySide:
    """One unit's steps. ``command`` is nvcc's for the unit, as the shell gets it; ``devices`` may
    make their half; where there are ``doubts`` about the host's half, ``cudafe++`` tells its
    mistakes first, and the C++ units of the flight stand still until then."""

    def __init__(
        self, compiling: Compiling, unit: Unit, command: list[str], devices: DeviceHalf,
        tools: Tools, share: Share, doubts: Doubts,
    ) -> None:  # fmt: skip
        self._compiling = compiling
        self._work = work = compiling.work
        self._unit = unit
        self._command = command
        self._devices = devices
        self._host_first = doubts == "host"
        self._tools = tools
        self._share = share
        self._folder = work.tree / f"{unit.object}.steps"
        self._made = command[command.index("-o") + 1]
        self._depfile = Path(work.folder, command[command.index("-MF") + 1])

    async def run(self) -> Finished:
        """Make the object and its depfile. Raises UnknownPlan, OSError."""
        await asyncio.to_thread(self._folder.mkdir, exist_ok=True)
        environment = {**self._work.environment(), "TMPDIR": str(self._folder)}
        asked = await self._ran(
            [self._command[0], "--dryrun", *without_threads(self._command[1:])],
            environment,
            _DRYRUN_SECONDS,
        )
        if asked.code != 0:
            raise UnknownPlan("nvcc shows no plan")
        steps = nvcc_steps.parse(asked.output, self._folder, self._made)
        name = nvcc_steps.module_name(
            self._unit.source, f"{self._work.request.name} {self._unit.object}"
        )
        await asyncio.to_thread(steps.module_id.write_text, name)
        environment = {**environment, **steps.environment}
        finished, failed = await self._all(steps, name, environment)
        if self._devices.stands and failed in ("fatbinary", HOST):
            self._devices.give_up()
            finished, _ = await self._all(steps, "", environment)
        if not finished.timed_out and failures.was_killed(finished):
            raise UnknownPlan("a step was killed")
        if finished.code == 0:
            await asyncio.to_thread(self._write_dependencies, steps)
        return Finished(finished.code, steps.told + finished.output, finished.timed_out)

    async def _all(
        self, steps: Steps, name: str, environment: dict[str, str]
    ) -> tuple[Finished, str]:
        """Run them, with PTX of a module of this ``name``, or without a name all by themselves:
        how they ended, and which one failed. Then only those that nvcc would have run before it go
        on."""
        tasks: list[asyncio.Task[Finished]] = []
        room = asyncio.Event()
        ptx = asyncio.create_task(self._ptx(name, steps, tasks))
        for place, step in enumerate(steps.steps):
            before = [tasks[one] for one in step.after]
            if self._host_first and step.makes_ptx:
                before += [tasks[one] for one in steps.places("cudafe++") if one < place]
            turn = self._in_turn(step, before, environment, room)
            if step.makes_ptx:
                turn = self._unless(ptx, step, steps, turn)
            tasks.append(asyncio.create_task(turn))
            _cancel_later_ones(tasks, place)
        by_half: dict[Half, list[asyncio.Task[Finished]]] = {"host": [], "device": [], "both": []}
        for task, step in zip(tasks, steps.steps, strict=True):
            by_half[step.half].append(task)
        making_room = asyncio.create_task(self._make_room(room, by_half["host"], by_half["device"]))
        ended = asyncio.create_task(asyncio.wait(tasks))
        try:
            await asyncio.wait({ended, ptx}, return_when=asyncio.FIRST_COMPLETED)
            if self._devices.refused is None:
                await asyncio.wait({ended})
        finally:
            for other in (making_room, ptx, ended):
                other.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, making_room, ptx, ended, return_exceptions=True)
        if (refused := self._devices.refused) is not None and ended.cancelled():
            return Finished(refused.code, refused.output), CUDAFE
        return _as_nvcc(tasks, steps)

    async def _ptx(self, name: str, steps: Steps, tasks: list[asyncio.Task[Finished]]) -> bool:
        """Whether the lean prelude's fork servers made the PTX, for a module of this name."""
        if not name or not await self._devices.make(name):
            return False
        if not self._devices.behind:
            return True
        preprocessed, listed = steps.host_preprocessor
        await asyncio.wait([tasks[preprocessed]])
        read = await asyncio.to_thread(ninja.dependencies, listed, Path(self._work.folder))
        return await self._devices.may_stand(read)

    async def _unless(
        self,
        ptx: asyncio.Task[bool],
        step: Step,
        steps: Steps,
        turn: Coroutine[None, None, Finished],
    ) -> Finished:
        """The step, unless what it would write has come from the lean prelude's fork servers."""
        try:
            await asyncio.wait([ptx])
            if ptx.cancelled() or not ptx.result():
                return await turn
        finally:
            turn.close()
        if step.name != "cicc":
            return Finished(0, "")
        number = [one for one in steps.steps if one.name == step.name].index(step)
        await asyncio.to_thread(self._devices.put, number, step.words)
        return Finished(0, self._devices.made.compiled.output if number == 0 else "")

    async def _in_turn(
        self, step: Step, before: list[asyncio.Task[Finished]], environment: dict[str, str],
        room: asyncio.Event,
    ) -> Finished:  # fmt: skip
        if before:  # not await: whoever is cancelled while it awaits a task cancels that as well
            await asyncio.wait(before)
        if any(one.cancelled() or one.exception() or one.result().code != 0 for one in before):
            raise asyncio.CancelledError
        words = step.words
        if step.half == "host" and step.name != "preprocessor":  # which takes a second
            await room.wait()
        elif step.half == "both" and nvcc_steps.is_gcc(step):
            words = [words[0], *self._heap(words), *words[1:]]
        first = self._host_first and step.half == "host"
        async with self._compiling.alone() if first else contextlib.nullcontext():
            return await self._timed(step, words, environment)

    async def _make_room(
        self,
        room: asyncio.Event,
        host: list[asyncio.Task[Finished]],
        devices: list[asyncio.Task[Finished]],
    ) -> None:
        """Let the host's half begin: with a permit beside the unit's own, or when the devices' half
        has ended, which waits for it where the host's comes first."""
        if self._host_first:
            self._compiling.chosen.set()
            room.set()
            return
        async with contextlib.AsyncExitStack() as stack:
            second = asyncio.create_task(self._enter(stack))
            ended = asyncio.create_task(asyncio.wait(devices))
            await asyncio.sleep(0)
            self._compiling.chosen.set()  # the second permit has been asked for
            try:
                await asyncio.wait({second, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (second, ended):
                    task.cancel()
                await asyncio.gather(second, ended, return_exceptions=True)
            room.set()
            await asyncio.wait(host)

    async def _enter(self, stack: contextlib.AsyncExitStack) -> None:
        first = not self._devices.own.is_short
        await stack.enter_async_context(self._tools.permits.hold(self._share, first=first))

    async def _timed(self, step: Step, words: list[str], environment: dict[str, str]) -> Finished:
        with self._work.timeline.span(step.name, f"{step.name} {self._unit.source}"):
            return await self._ran(words, environment, self._tools.config.build_timeout)

    def _ran(
        self, words: list[str], environment: dict[str, str], timeout: float
    ) -> Awaitable[Finished]:
        return self._tools.runner.run(
            words,
            cwd=self._work.folder,
            environment=environment,
            timeout=timeout,
            aside=self._devices.own.is_short and bool(self._compiling.plain),
            writes=[self._work.tree],
        )

    def _heap(self, words: list[str]) -> list[str]:
        """The options with which g++ has room, for its own words."""
        size = compiler_heap.size(self._tools.config, self._tools.permits.limit)
        return compiler_heap.words(words, size)

    def _write_dependencies(self, steps: Steps) -> None:
        """What all preprocessors read, as nvcc's own depfile lists it."""
        folder = Path(self._work.folder)
        listed = [place for place in steps.read if place.exists()]
        read = {name: None for place in listed for name in ninja.dependencies(place, folder)}
        if len(listed) < len(steps.read):
            read |= dict.fromkeys(sorted(self._devices.read()))
        ninja.write_rule(self._depfile, self._made, read)


def _cancel_later_ones(tasks: list[asyncio.Task[Finished]], place: int) -> None:
    """Once this one fails, nvcc would not have begun with what comes after it."""

    def ended(task: asyncio.Task[Finished]) -> None:
        if task.cancelled() or task.exception() is not None or task.result().code != 0:
            for later in tasks[place + 1 :]:
                later.cancel()

    tasks[place].add_done_callback(ended)


def _as_nvcc(tasks: list[asyncio.Task[Finished]], steps: Steps) -> tuple[Finished, str]:
    """How it ended, had they run one after the other, and which step failed. Raises what kept one
    from being started."""
    output = ""
    for task, step in zip(tasks, steps.steps, strict=True):
        finished = task.result()
        output += finished.output
        if finished.code != 0 or finished.timed_out:
            return Finished(finished.code, output, finished.timed_out), step.name
    return Finished(0, output), ""
