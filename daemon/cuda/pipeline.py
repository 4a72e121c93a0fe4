"""Compile one CUDA unit with warm state: nvcc's plan, with its front ends forked and a precompiled
host's prelude.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from warmcc import digest
from warmcc.daemon.build.work import Work
from warmcc.daemon.closure import assembler_reads
from warmcc.daemon.cuda import dryrun, machine_code, prologue
from warmcc.daemon.cuda.exact import command
from warmcc.daemon.cuda.front_ends import STEP_SECONDS, Fell, FrontEnds
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import Apart, CudaProfile
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import ninja

log = logging.getLogger(__name__)

_REFUSED = re.compile(r"^.*prelude\.h.*(?:Winvalid-pch|not used because|created by).*\n?", re.M)
_PTXAS = "ptxas"
_HOST = "the host's compiler"
_ASSEMBLED = "assembled.d"  # what the assembler read


@dataclass(frozen=True)
class Made:
    """What the compilers printed; whether g++ refused the host's precompiled header, which costs
    seconds; and steps that may be kept: what they wrote, by name, by key."""

    output: str
    refused: bool
    new: dict[str, dict[str, bytes]]


async def make(
    work: Work, unit: Unit, text: str, profile: CudaProfile, level: Level, runner: Runner,
    steps: StepCache, apart: Apart,
) -> Made:  # fmt: skip
    """Make the object of a unit with its own ``text``, and its list of dependencies; it waits in
    the context ``apart``. Raises Fell, ServerDied, OSError."""
    one = _Unit(work, unit, text, profile, level, runner, steps)
    folder = place(work, unit, level)
    output = await one.front_ends.both(folder)
    output += await one.assemble(folder)
    output += await one.host(folder, await one.precompiled(apart))
    await asyncio.to_thread(one.dependencies, folder)
    return Made(output, one.refused, {**one.front_ends.new, **one.new})


def place(work: Work, unit: Unit, level: Level) -> Path:
    """Where a unit's steps leave what they make."""
    return work.tree / f"{unit.object}.{level.name}"


class _Unit:
    def __init__(
        self, work: Work, unit: Unit, text: str, profile: CudaProfile, level: Level,
        runner: Runner, steps: StepCache,
    ) -> None:  # fmt: skip
        self._work = work
        self._unit = unit
        self._profile = profile
        self._level = level
        self._runner = runner
        self._steps = steps
        toolkit = profile.toolchain.cuda
        self._toolkit = toolkit.digest if toolkit is not None else ""
        self._plan = profile.plan
        self.refused = False
        self.new: dict[str, dict[str, bytes]] = {}
        # The same for all versions of a unit: an edit of host code leaves the PTX as it was.
        self._module_id = dryrun.module_id(digest.of_value([work.request.name, unit.object]))
        self.front_ends = FrontEnds(
            work, unit, text, profile, level, runner, steps, self._module_id
        )

    def _timed(self, step: str) -> contextlib.AbstractContextManager[None]:
        return self._work.timeline.span(step, f"{step} {self._unit.source}")

    async def assemble(self, folder: Path) -> str:
        """PTX to machine code, and all of it into one package."""
        steps = [step for device in self._plan.devices for step in device.ptxas]
        written = await asyncio.gather(*(self._ptxas(step, folder) for step in steps))
        packing = self._plan.fatbinary.naming(command.source(self._work, self._unit))
        return "".join(written) + await self._run(packing, folder, "fatbinary")

    async def _ptxas(self, step: dryrun.NvccCommand, folder: Path) -> str:
        if not step.output:
            return await self._run(step.words, folder, _PTXAS)
        key = await asyncio.to_thread(
            self._steps.key, step.words, [folder / step.input], self._toolkit
        )
        if await asyncio.to_thread(self._steps.find, key, folder, _PTXAS):
            return ""
        output = await self._run(step.words, folder, _PTXAS)
        if not output:
            self.new[key] = {step.output: (folder / step.output).read_bytes()}
        return output

    async def host(self, folder: Path, precompiled: str) -> str:
        """Compile what cudafe++ wrote of the unit, behind the host's prelude of this digest."""
        profile, plan = self._profile, self._plan
        assert profile.host is not None
        source = folder / plan.host.input
        text = await asyncio.to_thread(source.read_text, encoding="utf-8", errors="surrogateescape")
        empty = prologue.Empty(profile, self._level, self._runner, folder)
        try:
            found = self._level.prologues
            await prologue.check(text, found, [empty.alone, empty.behind_prelude])
            own = await asyncio.to_thread(
                prologue.users_part, text, self._level, profile.host.files
            )
        except prologue.OtherPrologue as error:
            raise Fell("cudafe++ writes something in front of the prelude", str(error)) from error
        stub = folder / plan.cudafe.stub
        for path, text in (
            (source, own),
            (stub, await asyncio.to_thread(stub.read_text, errors="surrogateescape")),
        ):
            plain = machine_code.without_bodies(self._in_prelude(text))
            path.write_text(plain, encoding="utf-8", errors="surrogateescape")
        options = ["-include", str(profile.host.header), "-Winvalid-pch"]
        made = str(self._work.tree / self._unit.object)
        told = (
            assembler_reads.option(folder / _ASSEMBLED)
            if self._work.toolchain.assembler_tells
            else ""
        )
        tells = [told] if told else []
        try:
            compiling, assembling = machine_code.steps(plan.host, options, made)
            packed = machine_code.name(plan)
            await asyncio.to_thread(machine_code.take_out, folder, packed)
        except machine_code.Whole as reason:
            log.info("%s is compiled in one step: %s", self._unit.source, reason)
            words = [*plan.host.options, plan.host.input, *options, "-o", made, *tells]
            said = self._heard(await self._run(words, folder, _HOST))
            await asyncio.to_thread(self._check_names, Path(made))
            return said
        read = [source, stub, folder / packed, *machine_code.headers(plan.host)]
        processor = requested.compile_environment(self._work.request, nvcc=True).get(
            requested.PROCESSOR, ""
        )
        known = [self._toolkit, self._work.toolchain.digest, precompiled, processor]
        key = await asyncio.to_thread(self._steps.key, compiling, read, *known)
        output = ""
        if not await asyncio.to_thread(self._steps.find, key, folder, _HOST):
            output = await self._run(compiling, folder, _HOST)
            if not output:
                self.new[key] = {
                    machine_code.ASSEMBLY: (folder / machine_code.ASSEMBLY).read_bytes()
                }
        said = self._heard(output) + await self._run([*assembling, *tells], folder, "the assembler")
        await asyncio.to_thread(self._check_names, Path(made))
        return said

    def _check_names(self, made: Path) -> None:
        """See that an object names no header (``__FILE__``) that is another file for this caller.
        Raises Fell."""
        assert self._profile.host is not None
        if others := self._profile.host.others:
            text = made.read_bytes()
            if found := [name for name in others if os.fsencode(name) in text]:
                raise Fell(_HOST, f"{found[0]} would be named in place of the caller's copy")

    async def precompiled(self, apart: Apart) -> str:
        """The digest of the host's prelude, once g++ has precompiled it. Raises Fell."""
        host = self._profile.host
        if host is not None and host.making.is_done:
            return await host.making.finish()
        async with apart():
            try:
                with self._timed("the host's prelude"):
                    return await asyncio.wait_for(self._awaited(), STEP_SECONDS)
            except (RuntimeError, asyncio.TimeoutError) as error:
                raise Fell("the host's prelude", str(error)) from error

    async def _awaited(self) -> str:
        host = await self._profile.host_text()
        host.making.haste.want()
        return await host.making.finish()

    def _heard(self, output: str) -> str:
        """What the host's compiler printed, without its word on the precompiled header."""
        self.refused = _REFUSED.search(output) is not None
        return _REFUSED.sub("", output)

    def _in_prelude(self, text: str) -> str:
        """The unit's text with the names that the host's prelude has for its unnamed namespaces."""
        assert self._profile.host is not None
        for scope in self._profile.host.unnamed:
            named = f"{scope}::_GLOBAL__N_{dryrun.NO_MODULE_ID}"
            text = text.replace(f"{scope}::_NV_ANON_NAMESPACE", named)
            text = text.replace(f"{scope}::_GLOBAL__N_{self._module_id}", named)
        return text

    async def _run(self, words: list[str], folder: Path, step: str) -> str:
        environment = {**self._profile.environment, "TMPDIR": str(folder)}
        with self._timed(step):
            done = await self._runner.run(
                words,
                cwd=folder,
                environment=environment,
                timeout=STEP_SECONDS,
                writes=[self._work.tree],
            )
        if done.code != 0:
            raise Fell(
                step,
                done.output,
                final=step == _PTXAS and done.code > 0 and "ptxas error" in done.output,
            )
        return done.output

    def dependencies(self, folder: Path) -> None:
        """Write what the object was made of, as nvcc's own depfile would list it."""
        assert self._profile.host is not None
        read: set[str] = set(self._profile.host.read)
        read |= self.front_ends.read(folder)
        with contextlib.suppress(
            FileNotFoundError
        ):  # what it reads is not known then, and nothing says that it is
            named = assembler_reads.read(folder / _ASSEMBLED, folder)
            read.update(path for path in named if os.path.lexists(path))
            ninja.write_rule(
                self._work.tree / f"{self._unit.object}{assembler_reads.SUFFIX}",
                self._unit.object,
                [],
            )
        level = self._level
        fronts = (*level.front, *level.devices_front)
        ours = (str(self._work.tree), *fronts, str(level.folder.parent))
        names = sorted(path for path in read if not path.startswith(ours) and os.path.isabs(path))
        ninja.write_rule(self._work.tree / f"{self._unit.object}.d", self._unit.object, names)
