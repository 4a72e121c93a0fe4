"""Compile a unit for which nothing is warm: nvcc's own steps, the host's half beside the devices'.

nvcc takes the sum of both halves, and this the longer one, where a second permit is free. The
result is nvcc's: the same programs with the same words, but for the name of the module
(``nvcc_steps.py``). Whatever is not understood, and whatever ends in another way than a compiler's
exit, is left to nvcc.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from warmcc.daemon.build import failures
from warmcc.daemon.build.work import Work
from warmcc.daemon.cuda import nvcc_steps
from warmcc.daemon.cuda.dryrun import UnknownPlan
from warmcc.daemon.cuda.nvcc_steps import Half, Step, Steps
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished, Runner
from warmcc.daemon.toolchain import ninja

log = logging.getLogger(__name__)

_DRYRUN_SECONDS = 60.0


class SideBySide:
    """One unit's steps. ``command`` is nvcc's for the unit, as the shell gets it; ``heap`` gives
    the options with which g++ has room, for its own words; ``on_asked`` hears when a second permit
    has been asked for."""

    def __init__(
        self, work: Work, unit: Unit, command: list[str], runner: Runner, permits: Permits, share: Share,
        heap: Callable[[list[str]], list[str]], timeout: float, on_asked: Callable[[], None],
    ) -> None:  # fmt: skip
        self._work = work
        self._unit = unit
        self._command = command
        self._runner = runner
        self._permits = permits
        self._share = share
        self._heap = heap
        self._on_asked = on_asked
        self._timeout = timeout
        self._folder = work.tree / f"{unit.object}.steps"
        self._made = command[command.index("-o") + 1]
        self._depfile = Path(work.folder, command[command.index("-MF") + 1])

    async def run(self) -> Finished:
        """Make the object and its depfile. Raises UnknownPlan, OSError."""
        await asyncio.to_thread(self._folder.mkdir, exist_ok=True)
        environment = {**self._work.environment(), "TMPDIR": str(self._folder)}
        asked = await self._ran(
            [self._command[0], "--dryrun", *self._command[1:]], environment, _DRYRUN_SECONDS
        )
        if asked.code != 0:
            raise UnknownPlan("nvcc shows no plan")
        steps = nvcc_steps.parse(asked.output, self._folder, self._made)
        name = nvcc_steps.module_name(
            self._unit.source, f"{self._work.request.name} {self._unit.object}"
        )
        await asyncio.to_thread(steps.module_id.write_text, name)
        finished = await self._all(steps, {**environment, **steps.environment})
        if not finished.timed_out and failures.was_killed(finished):
            raise UnknownPlan("a step was killed")
        if finished.code == 0:
            await asyncio.to_thread(self._write_dependencies, steps)
        return Finished(finished.code, steps.told + finished.output, finished.timed_out)

    async def _all(self, steps: Steps, environment: dict[str, str]) -> Finished:
        """Run them. When one fails, only those that nvcc would have run before it go on."""
        tasks: list[asyncio.Task[Finished]] = []
        room = asyncio.Event()
        for place, step in enumerate(steps.steps):
            before = [tasks[one] for one in step.after]
            tasks.append(asyncio.create_task(self._in_turn(step, before, environment, room)))
            _cancel_later_ones(tasks, place)
        by_half: dict[Half, list[asyncio.Task[Finished]]] = {"host": [], "device": [], "both": []}
        for task, step in zip(tasks, steps.steps, strict=True):
            by_half[step.half].append(task)
        making_room = asyncio.create_task(self._make_room(room, by_half["host"], by_half["device"]))
        try:
            await asyncio.wait(tasks)
        finally:
            making_room.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, making_room, return_exceptions=True)
        return _as_nvcc(tasks)

    async def _in_turn(
        self,
        step: Step,
        before: list[asyncio.Task[Finished]],
        environment: dict[str, str],
        room: asyncio.Event,
    ) -> Finished:
        if before:
            await asyncio.wait(
                before
            )  # not await: whoever is cancelled while it awaits a task cancels that as well
        if any(one.cancelled() or one.exception() or one.result().code != 0 for one in before):
            raise asyncio.CancelledError
        words = step.words
        if step.half == "host":
            await room.wait()
        elif step.half == "both" and nvcc_steps.is_gcc(step):
            words = [words[0], *self._heap(words), *words[1:]]
        return await self._timed(step, words, environment)

    async def _make_room(
        self,
        room: asyncio.Event,
        host: list[asyncio.Task[Finished]],
        devices: list[asyncio.Task[Finished]],
    ) -> None:
        """Let the host's half begin: with a permit beside the unit's own, or when the devices' half
        has ended.
        """
        async with contextlib.AsyncExitStack() as stack:
            second = asyncio.create_task(self._enter(stack))
            ended = asyncio.create_task(asyncio.wait(devices))
            await asyncio.sleep(0)
            self._on_asked()
            try:
                await asyncio.wait({second, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (second, ended):
                    task.cancel()
                await asyncio.gather(second, ended, return_exceptions=True)
            room.set()
            await asyncio.wait(host)

    async def _enter(self, stack: contextlib.AsyncExitStack) -> None:
        await stack.enter_async_context(self._permits.hold(self._share))

    async def _timed(self, step: Step, words: list[str], environment: dict[str, str]) -> Finished:
        with self._work.timeline.span(step.name, f"{step.name} {self._unit.source}"):
            return await self._ran(words, environment, self._timeout)

    def _ran(
        self, words: list[str], environment: dict[str, str], timeout: float
    ) -> Awaitable[Finished]:
        return self._runner.run(
            words,
            cwd=self._work.folder,
            environment=environment,
            timeout=timeout,
            writes=[self._work.tree],
        )

    def _write_dependencies(self, steps: Steps) -> None:
        """What all preprocessors read, as nvcc's own depfile lists it."""
        read = {
            name: None
            for listed in steps.read
            for name in ninja.dependencies(listed, Path(self._work.folder))
        }
        ninja.write_rule(self._depfile, self._made, read)


def _cancel_later_ones(tasks: list[asyncio.Task[Finished]], place: int) -> None:
    """Once this one fails, nvcc would not have begun with what comes after it."""

    def ended(task: asyncio.Task[Finished]) -> None:
        if task.cancelled() or task.exception() is not None or task.result().code != 0:
            for later in tasks[place + 1 :]:
                later.cancel()

    tasks[place].add_done_callback(ended)


def _as_nvcc(tasks: list[asyncio.Task[Finished]]) -> Finished:
    """How it ended, had they run one after the other. Raises what kept a step from being started."""
    output = ""
    for task in tasks:
        finished = task.result()
        output += finished.output
        if finished.code != 0 or finished.timed_out:
            return Finished(finished.code, output, finished.timed_out)
    return Finished(0, output)
