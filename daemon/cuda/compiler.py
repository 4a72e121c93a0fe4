"""Compile the CUDA units of a flight side by side, beside its other units."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shlex
import time
from collections.abc import AsyncIterator, Hashable
from pathlib import Path

from warmcc.config import Config
from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.build.flight import Flight
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.work import Work
from warmcc.daemon.closure import assembler_reads
from warmcc.daemon.cuda import eligibility, sample
from warmcc.daemon.cuda import pipeline as units
from warmcc.daemon.cuda.dryrun import UnknownPlan
from warmcc.daemon.cuda.side_by_side import SideBySide
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm.fork_servers import ServerDied
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished, Runner
from warmcc.daemon.toolchain import compiler_heap, ninja
from warmcc.daemon.toolchain.flags import split
from warmcc.daemon.verify.sampling import Inputs, Sampler

log = logging.getLogger(__name__)

_WAITED_SECONDS = 0.2  # what takes longer is a step of the build


class CudaCompiler:
    """Makes objects of CUDA units. One per daemon."""

    def __init__(
        self, config: Config, profiles: CudaProfiles, runner: Runner, counters: Counters, sampler: Sampler,
        steps: StepCache, permits: Permits, learnt: Learnt,
    ) -> None:  # fmt: skip
        self._config = config
        self._profiles = profiles
        self._runner = runner
        self._counters = counters
        self._sampler = sampler
        self._steps = steps
        self._permits = permits
        self._learnt = learnt

    @contextlib.asynccontextmanager
    async def compiling(
        self, work: Work, flight: Flight, share: Share | None
    ) -> AsyncIterator[Compiling]:
        """Start to compile the CUDA units that the store does not have, each with a permit of the
        share; whatever still runs at the end is killed."""
        pending = work.cuda_units
        for unit in pending:
            if unit.text is not None:
                (work.tree / unit.source).write_text(unit.text, encoding="utf-8", newline="")
        compiling = Compiling(work, flight, share)
        compiling.start(pending, self._permits, lambda unit: self._compile_one(unit, compiling))
        try:
            yield compiling
        finally:
            await compiling.close()

    async def _compile_one(self, unit: Unit, compiling: Compiling) -> Finished:
        """At the fastest level that can; nvcc itself when none can, or when the unit does not
        compile.
        """
        work = compiling.work
        text = unit.text if unit.text is not None else await asyncio.to_thread(_read, unit.source)
        complaints = ""  # what was said at the lean level
        fell: list[Level] = []
        profile = await self._profile(work, unit, text)
        for level in [] if profile is None else self._levels(profile, text):
            assert profile is not None
            if any(
                self._learnt.avoids(key, times) for key, times in _tries(profile, level, work, unit)
            ):
                self._counters.cuda_reasons[f"{level.name}: fell each time"] += 1
                continue
            compiling.chosen.set()
            made = await self._at(level, work, unit, profile)
            if isinstance(made, units.Made):
                self._succeeded(compiling, unit, profile, level, made)
                finished = self._told(compiling, unit, made.output, 0)
                break
            if made.final:
                finished = self._told(compiling, unit, made.output, 1)
                break
            fell.append(level)
            complaints = made.output if level.name == "lean" else complaints
        else:
            self._counters.cuda["exact"] += 1
            finished = await self._exact(compiling, unit)
        if finished.code == 0 and profile is not None:
            for level in fell:
                for key, _ in _tries(profile, level, work, unit):
                    self._learnt.failed(key)
        if complaints and finished.code == 0:
            self._profiles.missing.learn(complaints, [text])
        if profile is not None and (profile.lean is None or unit.maker != profile.lean.maker):
            self._profiles.want_warm(profile, text)  # for the next one like it
        self._counters.compiles += finished.code == 0
        return finished

    def _succeeded(
        self, compiling: Compiling, unit: Unit, profile: CudaProfile, level: Level, made: units.Made
    ) -> None:
        self._counters.cuda[level.name] += 1
        for key, _ in _tries(profile, level, compiling.work, unit):
            self._learnt.worked(key)
        if level is profile.lean:
            self._profiles.ahead.want(level)
        unit.maker = level.maker
        compiling.offers.append(
            asyncio.create_task(self._keep(compiling.work, unit, profile, level, made))
        )

    def _told(self, compiling: Compiling, unit: Unit, output: str, code: int) -> Finished:
        """How a unit ended, in the words of stock's build."""
        failed = f"FAILED: {unit.object}\n" if code != 0 else ""
        text = f"{compiling.flight.mark()}{self._command(compiling.work, unit)}\n{failed}{output}"
        compiling.flight.output(text)
        return Finished(code, text)

    async def _profile(self, work: Work, unit: Unit, text: str) -> CudaProfile | None:
        """The warm state for a unit; None when there is none, for a reason that is counted."""
        if not self._config.cuda_warm:
            return None
        if await asyncio.to_thread(_hides_torch, work, unit, text):
            self._counters.cuda_reasons["a header of its own may include torch"] += 1
            return None
        asked = time.monotonic()
        profile = await self._profiles.find(
            work.request, work.toolchain, work.plan, text, waits=True
        )
        if time.monotonic() - asked > _WAITED_SECONDS:
            work.timeline.add(
                "fork servers", f"fork servers for {unit.source}", asked, time.monotonic()
            )
        if isinstance(profile, str):
            self._counters.cuda_reasons[profile] += 1
            return None
        return profile

    def _levels(self, profile: CudaProfile, text: str) -> list[Level]:
        found, reason = self._profiles.levels(profile, text)
        if reason is not None:
            self._counters.cuda_reasons[reason] += 1
        return found

    async def _at(
        self, level: Level, work: Work, unit: Unit, profile: CudaProfile
    ) -> units.Made | units.Fell:
        """The unit at one level, or why the next one has to do it."""
        try:
            with profile.in_use():
                made = await units.make(work, unit, profile, level, self._runner, self._steps)
            if made.refused:
                self._counters.cuda_reasons[
                    f"{level.name}: g++ refused the host's precompiled header"
                ] += 1
            return made
        except units.Fell as fell:
            self._counters.cuda_reasons[f"{level.name}: {fell}"] += 1
            log.info(
                "%s fell from the %s level at %s:\n%s",
                unit.source,
                level.name,
                fell,
                fell.output[:3000],
            )
            return fell
        except ServerDied as died:
            self._counters.cuda_reasons[f"{level.name}: a fork server died"] += 1
            self._profiles.drop(profile, "a fork server died")
            log.info("%s", died)
        except OSError as error:
            self._counters.cuda_reasons[f"{level.name}: {error.strerror or error}"] += 1
            log.info("%s fell from the %s level: %s", unit.source, level.name, error)
        return units.Fell(level.name)

    async def _keep(
        self, work: Work, unit: Unit, profile: CudaProfile, level: Level, made: units.Made
    ) -> None:
        """Keep the steps, and offer the unit as a sample, while the link goes on."""
        with contextlib.suppress(OSError):
            await asyncio.to_thread(
                self._steps.keep, made.new, units.place(work, unit, level), level.maker
            )
        if unit.text is not None and self._sampler.wants:
            await self._offer(work, unit, unit.text, profile, level)

    async def _offer(
        self, work: Work, unit: Unit, text: str, profile: CudaProfile, level: Level
    ) -> None:
        plan = work.plan
        words = [plan.nvcc, *split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}")]
        folder, environment = units.place(work, unit, level), profile.environment
        made = await sample.read(folder, work.tree / unit.object, environment, self._runner)
        read = ninja.dependencies(work.tree / f"{unit.object}.d", work.folder)
        inputs = await asyncio.to_thread(Inputs.of, read, work.marker)
        name = work.request.module_name
        self._sampler.offer(
            sample.CudaSample(
                name, level.maker, inputs, text, words, environment, made, self._runner
            )
        )

    async def _exact(self, compiling: Compiling, unit: Unit) -> Finished:
        """What nvcc makes: by its own steps side by side, or by nvcc itself with stock's command."""
        work = compiling.work
        if (finished := await self._side_by_side(compiling, unit)) is not None:
            return finished
        with work.timeline.span("nvcc", f"nvcc {unit.source}"):
            finished = await self._runner.run(
                ["/bin/sh", "-c", self._command(work, unit)], cwd=work.folder, environment=work.environment(),
                timeout=self._config.build_timeout, writes=[work.tree],
            )  # fmt: skip
        told = self._told(compiling, unit, finished.output, finished.code)
        return Finished(finished.code, told.output, finished.timed_out)

    async def _side_by_side(self, compiling: Compiling, unit: Unit) -> Finished | None:
        """None where nvcc has to do it."""
        work = compiling.work
        if compiling.share is None or not self._config.cuda_side_by_side:
            return None
        jobs = self._permits.limit
        steps = SideBySide(
            work, unit, shlex.split(self._command(work, unit)), self._runner, self._permits, compiling.share,
            lambda words: compiler_heap.words(words, compiler_heap.size(self._config, jobs)),
            self._config.build_timeout, compiling.chosen.set,
        )  # fmt: skip
        try:
            finished = await steps.run()
        except UnknownPlan as reason:
            self._counters.cuda_reasons[f"side by side: {reason}"] += 1
        except (OSError, ValueError) as error:
            self._counters.cuda_reasons[f"side by side: {type(error).__name__}"] += 1
            log.info("%s is left to nvcc: %s", unit.source, error)
        else:
            told = self._told(compiling, unit, finished.output, finished.code)
            return Finished(finished.code, told.output, finished.timed_out)
        return None

    @staticmethod
    def _command(work: Work, unit: Unit) -> str:
        plan = work.plan
        place = str(work.tree / unit.object) if work.workdir is not None else unit.object
        source = (
            str(work.tree / unit.source)
            if unit.text is not None and work.workdir is not None
            else unit.source
        )
        quoted = [ninja.shell_words([word]) for word in (plan.nvcc, f"{place}.d", source, place)]
        home = requested.home(work.request)
        search = f"-I {ninja.shell_words([home])} " if home is not None else ""
        told = (
            assembler_reads.option(f"{place}{assembler_reads.SUFFIX}")
            if work.toolchain.assembler_tells
            else ""
        )
        told = (
            f" -Xcompiler {ninja.shell_words([told.replace(',', chr(92) + ',')])}" if told else ""
        )
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


def _hides_torch(work: Work, unit: Unit, text: str) -> bool:
    """Whether a unit includes torch by way of a header of its own, as far as the daemon may read
    such.
    """
    if not work.follows:
        return not eligibility.has_torch(text) and eligibility.has_own(text)
    home = requested.home(work.request)
    folder = str(work.tree) if unit.text is not None else os.path.dirname(unit.source)
    searched = [*([home] if home is not None else []), *eligibility.users_folders(work.request)]
    return eligibility.hides_torch(text, folder, searched)


def _tries(
    profile: CudaProfile, level: Level, work: Work, unit: Unit
) -> list[tuple[Hashable, int]]:
    """What is known of a level, and how often it falls until it is left out: for one unit, and for
    one set of flags.
    """
    return [
        ((level.maker, profile.key, work.request.name, unit.object), 2),
        ((level.maker, profile.key), 8),
    ]
