"""Compile the CUDA units of a flight side by side, beside its other units."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Hashable
from pathlib import Path

from warmcc.config import Config
from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.build.flight import Flight
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.work import Outcome, Work
from warmcc.daemon.cuda import pipeline as units
from warmcc.daemon.cuda import sample
from warmcc.daemon.cuda.exact.exact import Exact, told
from warmcc.daemon.cuda.front_ends import Fell
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.unit_text import eligibility, own_text
from warmcc.daemon.cuda.unit_text.own_text import OwnText
from warmcc.daemon.cuda.warm.finder import Finder
from warmcc.daemon.cuda.warm.fork_servers import ServerDied
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished, Runner
from warmcc.daemon.toolchain import ninja
from warmcc.daemon.toolchain.flags import split
from warmcc.daemon.verify.sampling import Inputs, Sampler

log = logging.getLogger(__name__)

_WAITED_SECONDS = 0.2  # what takes longer is a step of the build


class CudaCompiler:
    """Makes objects of CUDA units. One per daemon."""

    def __init__(
        self, config: Config, finder: Finder, runner: Runner, counters: Counters, sampler: Sampler,
        steps: StepCache, permits: Permits, learnt: Learnt,
    ) -> None:  # fmt: skip
        self._config = config
        self._finder = finder
        self._profiles = finder.profiles
        self._runner = runner
        self._counters = counters
        self._sampler = sampler
        self._steps = steps
        self._permits = permits
        self._exact = Exact(config, finder, runner, counters, steps, permits)
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
        own = await asyncio.to_thread(_own_text, work, unit)
        text = own.text
        complaints = ""  # what was said at the lean level
        fell: list[Level] = []
        profile = await self._profile(work, unit, own)
        for level in [] if profile is None else self._levels(profile, text):
            assert profile is not None
            if any(
                self._learnt.avoids(key, times) for key, times in _tries(profile, level, work, unit)
            ):
                self._counters.cuda_reasons[f"{level.name}: fell each time"] += 1
                continue
            compiling.chosen.set()
            made = await self._at(level, work, unit, text, profile)
            if isinstance(made, units.Made):
                self._succeeded(compiling, unit, profile, level, made)
                finished = told(compiling, unit, made.output, 0)
                break
            if made.final:
                finished = told(compiling, unit, made.output, 1)
                break
            fell.append(level)
            complaints = made.output if level.name == "lean" else complaints
        else:
            finished, half = await self._exact.compile(compiling, unit, own)
            if half is not None and finished.code == 0:
                ptx = half.made
                new = ptx.fronts.new
                self._keep_later(compiling, unit, ptx.profile, ptx.level, half.folder, new)
        if finished.code == 0 and profile is not None:
            for level in fell:
                for key, _ in _tries(profile, level, work, unit):
                    self._learnt.failed(key)
        if complaints and finished.code == 0:
            self._profiles.missing.learn(complaints, [text])
        if profile is not None and (
            profile.lean is None or work.outcome(unit).maker != profile.lean.maker
        ):
            self._finder.want_warm(profile, text)  # for the next one like it
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
        folder = units.place(compiling.work, unit, level)
        self._keep_later(compiling, unit, profile, level, folder, made.new)

    def _keep_later(
        self, compiling: Compiling, unit: Unit, profile: CudaProfile, level: Level, folder: Path,
        new: dict[str, dict[str, bytes]],
    ) -> None:  # fmt: skip
        compiling.work.outcomes[unit] = Outcome(maker=level.maker)
        keeping = self._keep(compiling.work, unit, profile, level, folder, new)
        compiling.offers.append(asyncio.create_task(keeping))

    async def _profile(self, work: Work, unit: Unit, own: OwnText) -> CudaProfile | None:
        """The warm state for a unit; None when there is none, for a reason that is counted."""
        if not self._config.cuda_warm:
            return None
        if own.why_partial:
            self._counters.cuda_reasons[own.why_partial] += 1
            return None
        asked = time.monotonic()
        profile = await self._finder.find(
            work.request, work.toolchain, work.plan, own.text, waits=True
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
        found, reason = self._finder.levels(profile, text)
        if reason is not None:
            self._counters.cuda_reasons[reason] += 1
        return found

    async def _at(
        self, level: Level, work: Work, unit: Unit, text: str, profile: CudaProfile
    ) -> units.Made | Fell:
        """The unit at one level, or why the next one has to do it."""
        try:
            with profile.in_use():
                made = await units.make(work, unit, text, profile, level, self._runner, self._steps)
            if made.refused:
                self._counters.cuda_reasons[
                    f"{level.name}: g++ refused the host's precompiled header"
                ] += 1
            return made
        except Fell as fell:
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
        return Fell(level.name)

    async def _keep(
        self, work: Work, unit: Unit, profile: CudaProfile, level: Level, folder: Path,
        new: dict[str, dict[str, bytes]],
    ) -> None:  # fmt: skip
        """Keep the steps, and offer the unit as a sample, while the link goes on. ``folder`` is
        where they were made."""
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._steps.keep, new, folder, level.maker)
        if unit.text is None or not self._sampler.wants:
            return
        plan, environment = work.plan, profile.environment
        words = [plan.nvcc, *split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}")]
        made = await sample.read(folder, work.tree / unit.object, environment, self._runner)
        read = ninja.dependencies(work.tree / f"{unit.object}.d", work.folder)
        inputs = await asyncio.to_thread(Inputs.of, read, work.marker)
        name = work.request.module_name
        self._sampler.offer(
            sample.CudaSample(
                name, level.maker, inputs, unit.text, words, environment, made, self._runner
            )
        )


def _own_text(work: Work, unit: Unit) -> OwnText:
    """A unit's own text, as far as the daemon may read it; a source that cannot be read is nvcc's
    to complain about."""
    text, folder = unit.text, str(work.tree)
    if text is None:
        folder = os.path.dirname(unit.source)
        try:
            text = Path(unit.source).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return OwnText("")
    if not work.follows:
        return own_text.alone(text)
    home = requested.home(work.request)
    searched = [*([home] if home is not None else []), *eligibility.users_folders(work.request)]
    return own_text.of(text, folder, searched)


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
