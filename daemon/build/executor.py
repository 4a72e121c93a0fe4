"""Build what a flight is for: choose a way and its accelerators, and run the steps.
``graph.py`` runs them. A way that failed for a reason that may not be the user's is followed by the
next.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Hashable
from pathlib import Path

from warmcc.config import Config
from warmcc.daemon.build import ccache, failures
from warmcc.daemon.build import work as working
from warmcc.daemon.build.cuda_units import CompilesCuda, Compiling
from warmcc.daemon.build.failures import Remedy
from warmcc.daemon.build.flight import Flight
from warmcc.daemon.build.graph import Graph
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.work import Work
from warmcc.daemon.pch import lean
from warmcc.daemon.pch.lean_sample import LeanSample
from warmcc.daemon.pch.pch import Profile
from warmcc.daemon.pch.profiles import Profiles, Wanted
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.ways import Unit, Way
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system.bounds import forget_oldest
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished, Runner
from warmcc.daemon.toolchain import Toolchain, cuda, ninja
from warmcc.daemon.toolchain.flags import plain_libraries, relative_paths, split
from warmcc.daemon.verify.sampling import Inputs, Sampler
from warmcc.request import Request

log = logging.getLogger(__name__)

_INVALID_PCH = re.compile(r"^.*prelude\.h.*(?:Winvalid-pch|not used because|created by).*\n?", re.M)
_MOST = 1000  # units that are remembered as not compiling
_MACRO = re.compile(r"not used because \W(\w+)\W is defined")


class Executor:
    """Executes plans. One per daemon."""

    def __init__(
        self, config: Config, profiles: Profiles, runner: Runner, permits: Permits,
        counters: Counters, missing: lean.Missing, sampler: Sampler, trust: Trust,
        nvcc: CompilesCuda, graph: Graph, learnt: Learnt,
    ) -> None:  # fmt: skip
        self._config = config
        self._profiles = profiles
        self._runner = runner
        self._permits = permits
        self._counters = counters
        self._missing = missing
        self._sampler = sampler
        self._trust = trust
        self._nvcc = nvcc
        self._graph = graph
        self._learnt = learnt
        self._broken: dict[str, None] = {}  # keys of generated units that did not compile

    async def run(self, work: Work, flight: Flight) -> Finished:
        """Compile and link; by the next way or without accelerators when these may be to blame."""
        flight.phase = "queued"
        await self._profiles.settle()
        share = self._share(work, flight)
        behind_lean = ""  # what the compiler said behind the lean prelude
        async with self._nvcc.compiling(work, flight, share) as cuda:
            for way in work.ways.ways:
                if not self._open(work, way):
                    continue
                await asyncio.to_thread(working.enter, work, way)
                finished = await self._attempt(work, flight, share, cuda)
                if (
                    way.name == "stock"
                    or finished.timed_out
                    or cuda.failed
                    or not self._goes_on(work, finished)
                ):
                    break
                behind_lean = finished.output if way.name == "lean" else behind_lean
        if behind_lean and finished.code == 0:
            self._missing.learn(behind_lean, work.request.cpp_sources)
        if finished.code == 0:
            self._counters.ways[work.way.name] += 1
            self._sampler.built()
            await asyncio.to_thread(self._offer, work)
        return Finished(finished.code, _INVALID_PCH.sub("", finished.output), finished.timed_out)

    def _share(self, work: Work, flight: Flight) -> Share | None:
        """What a flight may have of the machine; None where nobody waits for it."""
        if flight.first is None:
            return None

        def placed(waiting: float) -> None:
            flight.phase = "compiling"
            if (now := time.monotonic()) - waiting > 0.001:
                work.timeline.add("wait", "wait for a place", waiting, now)

        jobs = work.request.environment.get("MAX_JOBS", "")
        most = int(jobs) if jobs.isdecimal() and int(jobs) > 0 else self._permits.limit
        return Share(flight.first[0], min(most, self._permits.limit), placed)

    def _offer(self, work: Work) -> None:
        """Offer what was built the lean way as a sample."""
        unit, stock = work.way.units[0], work.ways.ways[-1].units[0].text
        if (
            work.way.name != "lean"
            or unit.pch is None
            or unit.text is None
            or stock is None
            or not self._sampler.wants
        ):
            return
        request, plan = work.request, work.plan
        read = ninja.dependencies(work.tree / f"{unit.object}.d", work.folder)
        inputs = Inputs.of(
            [path for path in read if not path.startswith(str(work.tree))], work.marker
        )
        flags = f"{plan.cflags} {plan.post_cflags}".strip()
        source = "\n".join(request.cpp_sources)
        self._sampler.offer(
            LeanSample(
                request.module_name, lean.maker(work.toolchain.digest), inputs, work.toolchain.argv,
                flags, work.environment(), unit.pch, unit.text, stock, source, self._runner,
            )
        )  # fmt: skip

    def _goes_on(self, work: Work, finished: Finished) -> bool:
        """Whether the next way may succeed where this one failed."""
        if (reason := failures.why_next_way(finished, work)) is None:
            return False
        self._counters.way_fallbacks[reason] += 1
        if generated := failures.generated_that_failed(finished, work):
            # A full disk or a killed compiler may be gone the next time.
            if not failures.may_be_an_accelerators(finished.output):
                for unit in generated:
                    forget_oldest(self._broken, _MOST)
                    self._broken[unit.key] = None
            log.warning(
                "a generated unit did not compile, pybind11 takes its place:\n%s",
                finished.output[-3000:],
            )
        return True

    # ------------------------------------------------------------------ accelerators

    def _open(self, work: Work, way: Way) -> bool:
        """Choose the PCHs of a way; False when the way is useless.
        It is when a PCH is not ready, or a unit is known not to compile."""
        if any(unit.key in self._broken for unit in way.units):
            return False
        if way.name == "lean" and lean.maker(work.toolchain.digest) not in self._trust:
            return False
        for unit in way.units:
            unit.pch = None if unit.kept is not None else self._pch(work, unit)
        return way.name == "stock" or all(
            unit.kept is not None or unit.pch is not None or (unit.generated and not unit.headers)
            for unit in way.units
            if not unit.cuda
        )

    def _pch(self, work: Work, unit: Unit) -> Path | None:
        wanted = self.wanted(work.request, work.toolchain, work.plan)
        unit.passed = None
        if wanted is not None and unit.why_none:
            self._profiles.unmatched[unit.why_none] += 1
        if wanted is None or not unit.headers:
            return None
        if (
            profile := self._profiles.find(
                wanted, unit.headers, exact=unit.exact, macros=unit.macros
            )
        ) is None:
            return None
        unit.profile = profile
        if self._learnt.avoids(_refusal(work, profile)):
            return None
        unit.passed = unit.macros[len(profile.headers) - 1] if unit.macros else None
        return profile.header

    def wanted(self, request: Request, toolchain: Toolchain, plan: Plan) -> Wanted | None:
        """What the units of a plan want of a profile; None when none may serve them."""
        flags = f"{plan.cflags} {plan.post_cflags}".strip()
        if not self._config.pch or toolchain.family != "gcc" or relative_paths(flags):
            return None
        if any(
            word.startswith(("-include", "-imacros"))
            for word in (*toolchain.argv[1:], *split(flags))
        ):
            return None  # what stands in front of all headers must stay there
        users = [word for text in request.extra_cflags for word in split(text)]
        if (toolkit := cuda.home(request.environment)) is not None:
            # What torch's headers for C++ never look into
            users.append(f"-isystem{toolkit}/include")
        variables = requested.compile_environment(request, nvcc=False)
        return Wanted(
            toolchain, split(flags), users, variables, requested.build_environment(request)
        )

    def _refused(self, work: Work, finished: Finished) -> None:
        """Note why a compiler did without a PCH that it was given, or failed with it."""
        if not (accelerated := [unit for unit in work.units if unit.pch is not None]):
            return
        wanted = self.wanted(work.request, work.toolchain, work.plan)
        if macro := _MACRO.search(finished.output):
            self._counters.pch_fallbacks[f"a header mentions {macro[1]}"] += 1
            if wanted is not None:
                self._profiles.mentioned(wanted, macro[1])
        elif _INVALID_PCH.search(finished.output) or ninja.NOT_USED in finished.output:
            self._counters.pch_fallbacks["refused by the compiler"] += 1
            for unit in accelerated:
                if unit.profile is not None and (
                    finished.code == 0 or ninja.NOT_USED in finished.output
                ):
                    self._learnt.failed(_refusal(work, unit.profile))
        elif finished.code != 0 and failures.may_be_an_accelerators(finished.output):
            for unit in accelerated:
                if unit.profile is not None:
                    self._profiles.refused(unit.profile, "a compile failed with it")

    # ------------------------------------------------------------------ running

    async def _attempt(
        self, work: Work, flight: Flight, share: Share | None, cuda: Compiling
    ) -> Finished:
        """Run one way; again without the fast linker or the PCH when that is to blame."""
        fast = self._config.fast_linker and plain_libraries(work.request.extra_ldflags)
        tried = (work.toolchain.digest, work.toolchain.linkers[0].option, work.plan.ldflags)
        work.linker = work.toolchain.linkers[0 if fast and not self._learnt.avoids(tried) else -1]
        finished = await self._graph.run(work, flight, share, cuda)
        for row in failures.WITHIN_A_WAY:
            if row.remedy is Remedy.WITHOUT_PCH:
                self._refused(work, finished)
            if row.is_it(finished, work):
                self._apply(row.remedy, work)
                finished = await self._graph.run(work, flight, share, cuda)
                if row.remedy is Remedy.OWN_LINKER and finished.code == 0:
                    self._learnt.failed(tried)
        if finished.code == 0 and work.linker.option:
            self._learnt.worked(tried)
        if moved := await asyncio.to_thread(self._moved, work):
            for unit in moved:
                unit.pch = None
            finished = await self._graph.run(work, flight, share, cuda)
        self._count(work)
        return finished

    def _apply(self, remedy: Remedy, work: Work) -> None:
        """Have the next run of a way's steps do without what failed."""
        if remedy is Remedy.OWN_LINKER:
            self._counters.linker_fallbacks[work.linker.option] += 1
            work.linker = work.toolchain.linkers[-1]
        elif remedy is Remedy.WITHOUT_PCH:
            for unit in work.units:
                unit.pch = None
        else:
            self._counters.way_fallbacks[remedy.value] += 1
            work.was_killed = work.was_killed or remedy is Remedy.AGAIN
            work.without_ccache = work.without_ccache or remedy is Remedy.WITHOUT_CCACHE

    @staticmethod
    def _moved(work: Work) -> list[Unit]:
        """Units whose files have changed since their PCH was chosen."""
        moved = [unit for unit in work.units if unit.pch is not None and unit.passed is not None]
        now = [(unit, working.opened(work, unit)) for unit in moved]
        return [
            unit
            for unit, begins in now
            if (begins.headers, begins.macros) != (unit.headers, unit.macros)
        ]

    def _count(self, work: Work) -> None:
        for unit in work.units:
            if unit.kept is None and not unit.cuda and (work.tree / unit.object).exists():
                self._counters.compiles += 1
                self._counters.pch_used += unit.pch is not None
        self._counters.ccache_hits += ccache.hits(work.tree)


def _refusal(work: Work, profile: Profile) -> Hashable:
    """What is known of g++ and a PCH: it refuses it for some flags."""
    return profile.id, work.plan.cflags, work.plan.post_cflags
