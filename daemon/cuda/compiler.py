"""Compile the CUDA units of a flight, beside its other units."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path

from warmcc.config import Config
from warmcc.daemon import assembler, keys, ninja
from warmcc.daemon.counters import Counters
from warmcc.daemon.cuda import sample
from warmcc.daemon.cuda import unit as units
from warmcc.daemon.cuda.level import Level
from warmcc.daemon.cuda.profile import Profile
from warmcc.daemon.cuda.profiles import CudaProfiles
from warmcc.daemon.cuda.servers import ServerDied
from warmcc.daemon.cuda.steps import Steps
from warmcc.daemon.process import Finished, Runner
from warmcc.daemon.sampling import Inputs, Sampler
from warmcc.daemon.scheduler import Flight
from warmcc.daemon.toolchain.flags import split
from warmcc.daemon.ways import Unit
from warmcc.daemon.work import Work

log = logging.getLogger(__name__)


class Compiling:
    """The CUDA units of one flight on their way."""

    def __init__(self, task: asyncio.Task[Finished] | None) -> None:
        self._task = task

    @property
    def failed(self) -> bool:
        """Whether it is known that they do not compile."""
        task = self._task
        return task is not None and task.done() and not task.cancelled() and task.result().code != 0

    async def finished(self) -> Finished:
        """Wait for them; the text is what stock's build would print of them."""
        return Finished(0, "") if self._task is None else await self._task


class CudaCompiler:
    """Makes objects of CUDA units. One per daemon."""

    def __init__(
        self, config: Config, profiles: CudaProfiles, runner: Runner, counters: Counters, sampler: Sampler,
        steps: Steps,
    ) -> None:  # fmt: skip
        self._config = config
        self._profiles = profiles
        self._runner = runner
        self._counters = counters
        self._sampler = sampler
        self._steps = steps

    @contextlib.asynccontextmanager
    async def compiling(self, work: Work, flight: Flight) -> AsyncIterator[Compiling]:
        """Start to compile the CUDA units that the store does not have; whatever still runs at the end is killed."""
        pending = work.cuda_units
        for unit in pending:
            if unit.text is not None:
                (work.tree / unit.source).write_text(unit.text, encoding="utf-8", newline="")
        offers: list[asyncio.Task[None]] = []
        task = asyncio.create_task(self._compile(work, pending, flight, offers)) if pending else None
        try:
            yield Compiling(task)
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, *offers, return_exceptions=True)

    async def _compile(
        self, work: Work, pending: list[Unit], flight: Flight, offers: list[asyncio.Task[None]]
    ) -> Finished:
        output = ""
        for unit in pending:
            finished = await self._compile_one(work, unit, flight, offers)
            output += finished.output
            if finished.code != 0 or finished.timed_out:
                return Finished(finished.code or 1, output, finished.timed_out)
            self._counters.compiles += 1
        return Finished(0, output)

    async def _compile_one(self, work: Work, unit: Unit, flight: Flight, offers: list[asyncio.Task[None]]) -> Finished:
        """At the fastest level that can; nvcc itself when none can, or when the unit does not compile."""
        text = unit.text if unit.text is not None else await asyncio.to_thread(_read, unit.source)
        complaints = ""  # what was said at the lean level
        profile = await self._profile(work, text)
        for level in [] if profile is None else self._levels(profile, text):
            assert profile is not None
            made = await self._at(level, work, unit, profile)
            if isinstance(made, units.Made):
                self._counters.cuda[level.name] += 1
                if level is profile.lean:
                    self._profiles.ahead.want(level)
                unit.maker = level.maker
                offers.append(asyncio.create_task(self._keep(work, unit, profile, level, made)))
                announced = f"[1/1] {self._command(work, unit)}\n"
                flight.output(announced + made.output)
                finished = Finished(0, announced + made.output)
                break
            if made.final:
                announced = f"[1/1] {self._command(work, unit)}\nFAILED: {unit.object}\n"
                flight.output(announced + made.output)
                finished = Finished(1, announced + made.output)
                break
            complaints = made.output if level.name == "lean" else complaints
        else:
            self._counters.cuda["exact"] += 1
            finished = await self._exact(work, unit, flight)
        if complaints and finished.code == 0:
            self._profiles.missing.learn(complaints, [text])
        if profile is not None and (profile.lean is None or unit.maker != profile.lean.maker):
            self._profiles.want_warm(profile, text)  # for the next one like it
        return finished

    async def _profile(self, work: Work, text: str) -> Profile | None:
        """The warm state for a unit; None when there is none, for a reason that is counted."""
        if not self._config.cuda_warm:
            return None
        profile = await self._profiles.find(work.request, work.toolchain, work.plan, text)
        if isinstance(profile, str):
            self._counters.cuda_reasons[profile] += 1
            return None
        return profile

    def _levels(self, profile: Profile, text: str) -> list[Level]:
        found, reason = self._profiles.levels(profile, text)
        if reason is not None:
            self._counters.cuda_reasons[reason] += 1
        return found

    async def _at(self, level: Level, work: Work, unit: Unit, profile: Profile) -> units.Made | units.Fell:
        """The unit at one level, or why the next one has to do it."""
        try:
            made = await units.make(work, unit, profile, level, self._runner, self._steps)
            if made.refused:
                self._counters.cuda_reasons[f"{level.name}: g++ refused the host's precompiled header"] += 1
            return made
        except units.Fell as fell:
            self._counters.cuda_reasons[f"{level.name}: {fell}"] += 1
            log.info("%s fell from the %s level at %s:\n%s", unit.source, level.name, fell, fell.output[:3000])
            return fell
        except ServerDied as died:
            self._counters.cuda_reasons[f"{level.name}: a fork server died"] += 1
            self._profiles.drop(profile, "a fork server died")
            log.info("%s", died)
        except OSError as error:
            self._counters.cuda_reasons[f"{level.name}: {error.strerror or error}"] += 1
            log.info("%s fell from the %s level: %s", unit.source, level.name, error)
        return units.Fell(level.name)

    async def _keep(self, work: Work, unit: Unit, profile: Profile, level: Level, made: units.Made) -> None:
        """Keep the steps, and offer the unit as a sample, while the link goes on."""
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._steps.keep, made.new, units.place(work, unit, level), level.maker)
        if unit.text is not None and self._sampler.wants:
            await self._offer(work, unit, unit.text, profile, level)

    async def _offer(self, work: Work, unit: Unit, text: str, profile: Profile, level: Level) -> None:
        plan = work.plan
        words = [plan.nvcc, *split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}")]
        folder, environment = units.place(work, unit, level), profile.environment
        made = await sample.read(folder, work.tree / unit.object, environment, self._runner)
        read = ninja.dependencies(work.tree / f"{unit.object}.d", work.folder)
        inputs = await asyncio.to_thread(Inputs.of, read, work.marker)
        name = work.request.module_name
        self._sampler.offer(sample.CudaSample(name, level.maker, inputs, text, words, environment, made, self._runner))

    async def _exact(self, work: Work, unit: Unit, flight: Flight) -> Finished:
        """nvcc itself, with stock's command."""
        command = self._command(work, unit)
        flight.output(announced := f"[1/1] {command}\n")
        argv = ["/bin/sh", "-c", command]
        with work.timeline.span("nvcc", f"nvcc {unit.source}"):
            finished = await self._runner.run(
                argv,
                cwd=work.folder,
                environment=work.environment(),
                timeout=self._config.build_timeout,
                on_line=flight.output,
                writes=[work.tree],
            )
        failed = f"FAILED: {unit.object}\n" if finished.code != 0 else ""
        return Finished(finished.code, announced + failed + finished.output, finished.timed_out)

    @staticmethod
    def _command(work: Work, unit: Unit) -> str:
        plan = work.plan
        place = str(work.tree / unit.object) if work.workdir is not None else unit.object
        source = str(work.tree / unit.source) if unit.text is not None and work.workdir is not None else unit.source
        quoted = [ninja.shell_words([word]) for word in (plan.nvcc, f"{place}.d", source, place)]
        home = keys.home(work.request)
        search = f"-I {ninja.shell_words([home])} " if home is not None else ""
        told = assembler.option(f"{place}{assembler.SUFFIX}") if work.toolchain.assembler_tells else ""
        told = f" -Xcompiler {ninja.shell_words([told.replace(',', chr(92) + ',')])}" if told else ""
        text = "{} -MD -MF {} {}{} -c {} -o {} {}".format(
            *quoted[:2], search, plan.cuda_cflags, *quoted[2:], plan.cuda_post_cflags
        )
        return re.sub(r"\$([ :$])", r"\1", text.rstrip() + told)


def _read(source: str) -> str:
    """A source file; one that cannot be read is nvcc's to complain about."""
    try:
        return Path(source).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
