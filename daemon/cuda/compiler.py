"""Compile the CUDA units of a flight side by side, beside its other units."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.build.flight import Flight
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.work import Outcome, Work
from warmcc.daemon.cuda.attempts import Attempts
from warmcc.daemon.cuda.exact.command import told
from warmcc.daemon.cuda.exact.exact import Exact
from warmcc.daemon.cuda.keeping import Compiled, keep
from warmcc.daemon.cuda.tools import Tools
from warmcc.daemon.cuda.unit_text import own_text
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.permits import Share
from warmcc.daemon.system.runner import Finished
from warmcc.daemon.verify.sampling import Sampler

_WAITED_SECONDS = 0.2  # what takes longer is a step of the build


class CudaCompiler:
    """Makes objects of CUDA units. One per daemon."""

    def __init__(self, tools: Tools, sampler: Sampler, learnt: Learnt) -> None:
        self._tools = tools
        self._sampler = sampler
        self._learnt = learnt
        self._exact = Exact(tools)

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
        permits = self._tools.permits
        texts = await asyncio.to_thread(_longest_first, work, pending)
        compiling.weight = sum(own.weight for own in texts.values())
        compiling.start(
            list(texts),
            permits,
            lambda unit: self._compile_one(unit, texts[unit], compiling),
            short={unit for unit, own in texts.items() if own.is_short},
        )
        try:
            yield compiling
        finally:
            await compiling.close()

    async def _compile_one(
        self, unit: Unit, own: own_text.OwnText, compiling: Compiling
    ) -> Finished:
        """At the fastest level that can; nvcc itself when none can, or when the unit does not
        compile."""
        work, tools = compiling.work, self._tools
        finished = await self._exact.compile_sooner(compiling, unit, own)
        if finished is not None:
            if tools.config.cuda_warm and not own.why_partial:
                tools.finder.want(work.request, work.toolchain, work.plan, own.text)
            tools.counters.compiles += finished.code == 0
            return finished
        profile = await self._profile(compiling, unit, own)
        attempts = None
        if profile is not None:
            attempts = Attempts(tools, self._learnt, work, unit, own.text, profile, compiling.apart)
            finished = await self._warm(attempts, compiling)
        if finished is None:
            doubts = "" if attempts is None else attempts.doubts
            finished, half = await self._exact.compile(compiling, unit, own, doubts)
            if half is not None and finished.code == 0:
                self._keep_later(compiling, unit, half)
            if attempts is not None and finished.code == 0:
                attempts.nvcc_succeeded()
        if profile is not None and (
            profile.lean is None or work.outcome(unit).maker != profile.lean.maker
        ):
            tools.finder.want_warm(profile, own.text)  # for the next one like it
        tools.counters.compiles += finished.code == 0
        return finished

    async def _profile(
        self, compiling: Compiling, unit: Unit, own: own_text.OwnText
    ) -> CudaProfile | None:
        """The warm state for a unit; None when there is none, for a reason that is counted."""
        work, tools = compiling.work, self._tools
        if not tools.config.cuda_warm:
            return None
        if own.why_partial:
            tools.counters.cuda_reasons[own.why_partial] += 1
            return None
        asked = time.monotonic()
        profile = await tools.finder.find(
            work.request, work.toolchain, work.plan, own.text, waits=compiling.apart,
            units=compiling.weight,
        )  # fmt: skip
        if (now := time.monotonic()) - asked > _WAITED_SECONDS:
            work.timeline.add("fork servers", f"fork servers for {unit.source}", asked, now)
        if isinstance(profile, str):
            tools.counters.cuda_reasons[profile] += 1
            return None
        return profile

    async def _warm(self, attempts: Attempts, compiling: Compiling) -> Finished | None:
        """The unit at the levels of its profile; None when none of them can tell."""
        unit, profile = attempts.unit, attempts.profile
        counters, profiles = self._tools.counters, self._tools.finder.profiles
        async for level in attempts.levels():
            if attempts.avoids(level):
                counters.cuda_reasons[f"{level.name}: fell each time"] += 1
                continue
            compiling.chosen.set()
            made = await attempts.at(level)
            if isinstance(made, Compiled):
                counters.cuda[level.name] += 1
                if level is profile.lean:
                    profiles.ahead.want(level)
                self._keep_later(compiling, unit, made)
                return told(compiling, unit, made.output, 0)
            if made.final:
                return told(compiling, unit, made.output, made.code)
        return None

    def _keep_later(self, compiling: Compiling, unit: Unit, compiled: Compiled) -> None:
        compiling.work.outcomes[unit] = Outcome(maker=compiled.level.maker)
        keeping = keep(compiled, compiling.work, unit, self._tools, self._sampler)
        compiling.offers.append(asyncio.create_task(keeping))


def _longest_first(work: Work, units: list[Unit]) -> dict[Unit, own_text.OwnText]:
    """Units with their own texts. Those with the longest ones, which take longest as far as one can
    tell, come first: one that begins last would keep the others' link waiting.
    """
    texts = {unit: own_text.of_unit(work, unit) for unit in units}
    return dict(sorted(texts.items(), key=lambda item: -len(item[1].text)))
