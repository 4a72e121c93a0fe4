"""Build what a flight is for: choose a way and its accelerators, and run the steps.
``graph.py`` runs them. A way that failed for a reason that may not be the user's is followed by the
next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable

from warmcc.config import Config
from warmcc.daemon.build import failures
from warmcc.daemon.build import work as working
from warmcc.daemon.build.cuda_units import CompilesCuda, Compiling
from warmcc.daemon.build.failures import Remedy
from warmcc.daemon.build.flight import Flight, Phase
from warmcc.daemon.build.graph import Graph
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.pch_choice import PchChoice, without_warnings
from warmcc.daemon.build.samples import LeanSamples
from warmcc.daemon.build.work import Taken, Work
from warmcc.daemon.pch import lean
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished
from warmcc.daemon.toolchain.flags import plain_libraries
from warmcc.daemon.toolchain.identity import Linker

log = logging.getLogger(__name__)


class Executor:
    """Executes plans. One per daemon."""

    def __init__(
        self, config: Config, pchs: PchChoice, permits: Permits, counters: Counters,
        missing: lean.Missing, samples: LeanSamples, nvcc: CompilesCuda, graph: Graph,
        learnt: Learnt,
    ) -> None:  # fmt: skip
        self._config = config
        self._pchs = pchs
        self._permits = permits
        self._counters = counters
        self._missing = missing
        self._samples = samples
        self._nvcc = nvcc
        self._graph = graph
        self._learnt = learnt

    async def run(self, work: Work, flight: Flight) -> Finished:
        """Compile and link; by the next way or without accelerators when these may be to blame."""
        flight.phase = Phase.QUEUED
        await self._pchs.settle()
        share = self._share(work, flight)
        await self._pchs.make_first(work, flight.alike, None if share is None else share.most)
        finished = Finished(1, "no way is open", timed_out=False)  # stock's always is
        behind_lean = ""  # what the compiler said behind the lean prelude
        async with self._nvcc.compiling(work, flight, share) as cuda:
            for way in work.ways.ways:
                if (attempts := self._pchs.choose(work, way)) is None:
                    continue
                linker = self._linker(work)
                await asyncio.to_thread(working.enter, work, Taken(way, attempts, linker))
                finished = await self._attempt(work, flight, share, cuda)
                if (
                    way.name == "stock"
                    or finished.timed_out
                    or cuda.failed
                    or not self._goes_on(work, finished)
                ):
                    break
                if way.name == "lean" and not any(one.text for one in attempts.values()):
                    behind_lean = finished.output
        if behind_lean and finished.code == 0:
            self._missing.learn(behind_lean, work.request.cpp_sources)
        if finished.code == 0:
            self._counters.ways[work.way.name] += 1
            self._samples.built()
            await asyncio.to_thread(self._samples.offer, work)
        return Finished(finished.code, without_warnings(finished.output), finished.timed_out)

    def _linker(self, work: Work) -> Linker:
        """The fastest linker, where it has not failed each time; else the compiler's own."""
        fast = self._config.fast_linker and plain_libraries(work.request.extra_ldflags)
        use_it = fast and not self._learnt.avoids(_fast_link(work))
        return work.toolchain.linkers[0 if use_it else -1]

    def _share(self, work: Work, flight: Flight) -> Share | None:
        """What a flight may have of the machine; None where nobody waits for it."""
        if flight.first is None:
            return None

        def placed(waiting: float) -> None:
            flight.phase = Phase.COMPILING
            if (now := time.monotonic()) - waiting > 0.001:
                work.timeline.add("wait", "wait for a place", waiting, now)

        jobs = work.request.environment.get("MAX_JOBS", "")
        is_bound = jobs.isdecimal() and int(jobs) > 0
        most = int(jobs) if is_bound else self._permits.limit
        return Share(flight.first[0], min(most, self._permits.limit), placed, is_bound=is_bound)

    def _goes_on(self, work: Work, finished: Finished) -> bool:
        """Whether the next way may succeed where this one failed."""
        if (reason := failures.why_next_way(finished, work)) is None:
            return False
        self._counters.way_fallbacks[reason] += 1
        if generated := failures.generated_that_failed(finished, work):
            # A full disk or a killed compiler may be gone the next time.
            if not failures.may_be_an_accelerators(finished.output):
                for unit in generated:
                    self._learnt.broken(work.found[unit].key)
            log.warning(
                "a generated unit did not compile, pybind11 takes its place:\n%s",
                finished.output[-3000:],
            )
        return True

    async def _attempt(
        self, work: Work, flight: Flight, share: Share | None, cuda: Compiling
    ) -> Finished:
        """Run one way; again without the fast linker or the PCH when that is to blame."""
        tried = _fast_link(work)
        finished = await self._graph.run(work, flight, share, cuda)
        left = list(failures.WITHIN_A_WAY)
        # One failure may hide the next: a step comes to the link only once it has compiled.
        while row := next((row for row in left if row.is_it(finished, work)), None):
            left.remove(row)
            if row.remedy is Remedy.WITHOUT_PCH and await self._pchs.note_refusals(work, finished):
                left.append(row)  # it may be refused for another reason
            else:
                self._apply(row.remedy, work)
            finished = await self._graph.run(work, flight, share, cuda)
            if row.remedy is Remedy.OWN_LINKER and finished.code == 0:
                self._learnt.failed(tried)
        await self._pchs.note_refusals(work, finished)
        if finished.code == 0 and work.taken.linker.option:
            self._learnt.worked(tried)
        if await asyncio.to_thread(self._pchs.drop_moved, work):
            finished = await self._graph.run(work, flight, share, cuda)
        self._count(work)
        return finished

    def _apply(self, remedy: Remedy, work: Work) -> None:
        """Have the next run of a way's steps do without what failed."""
        if remedy is Remedy.OWN_LINKER:
            self._counters.linker_fallbacks[work.taken.linker.option] += 1
            work.taken.linker = work.toolchain.linkers[-1]
        elif remedy is Remedy.WITHOUT_PCH:
            work.taken.attempts = {}
        else:
            self._counters.way_fallbacks[remedy.value] += 1
            work.was_killed = work.was_killed or remedy is Remedy.AGAIN
            work.without_ccache = work.without_ccache or remedy is Remedy.WITHOUT_CCACHE

    def _count(self, work: Work) -> None:
        for unit in work.units:
            if not work.has(unit) and not unit.cuda and (work.tree / unit.object).exists():
                self._counters.compiles += 1
                self._counters.pch_used += work.attempt(unit).pch is not None
        self._counters.ccache_hits += self._graph.ccache_hits(work)


def _fast_link(work: Work) -> Hashable:
    """What is known of links with the fastest linker."""
    return work.toolchain.digest, work.toolchain.linkers[0].option, work.plan.ldflags
