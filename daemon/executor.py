"""Run the steps of a flight: choose the way and its accelerators, hold permits, let ninja compile and link, and go on
to the next way when one failed for a reason that may not be the user's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from pathlib import Path

from warmcc.config import Config
from warmcc.daemon import assembler, ccache, keys, ninja
from warmcc.daemon import work as working
from warmcc.daemon.counters import Counters
from warmcc.daemon.cuda.compiler import Compiling, CudaCompiler
from warmcc.daemon.process import Finished, Runner
from warmcc.daemon.profiles import lean
from warmcc.daemon.profiles.fleet import Profiles, Wanted
from warmcc.daemon.profiles.sample import LeanSample
from warmcc.daemon.sampling import Inputs, Sampler
from warmcc.daemon.scheduler import Flight, Permits
from warmcc.daemon.toolchain import Toolchain, cuda, lookups
from warmcc.daemon.toolchain.flags import plain_libraries, relative_paths, split
from warmcc.daemon.trust import Trust
from warmcc.daemon.ways import Unit, Way
from warmcc.daemon.work import Work
from warmcc.daemon.zygote.plan import Plan
from warmcc.request import Request

log = logging.getLogger(__name__)

_NOT_THE_USERS = re.compile(
    r"internal compiler error|error: .*(?:\bPCH\b|\.gch\b|prelude\.h: No such file)|\.gch: .*error"
    r"|Killed signal|[Oo]ut of memory|[Cc]annot allocate memory|No space left on device|ccache: error"
)
# Somebody (the kernel, short of memory?) sent SIGKILL.
_KILLED = re.compile(r"Killed signal terminated program|terminated with signal 9")
_INVALID_PCH = re.compile(r"^.*prelude\.h.*(?:Winvalid-pch|not used because|created by).*\n?", re.M)
_MACRO = re.compile(r"not used because \W(\w+)\W is defined")
_NOTHING_TO_DO = "ninja: no work to do.\n"
_FAILED = re.compile(r"^FAILED: (?:\[code=\d+\] )?(\S+)", re.M)
_LINK_FAILED = re.compile(r"^FAILED: (?:\[code=\d+\] )?\S+\.so\b|^(?:\S*/)?(?:mold|ld\.lld|collect2): ", re.M)


class Executor:
    """Executes plans. One per daemon."""

    def __init__(
        self, config: Config, profiles: Profiles, runner: Runner, permits: Permits, counters: Counters,
        missing: lean.Missing, sampler: Sampler, trust: Trust, nvcc: CudaCompiler, ninja_path: str, ccache: str | None,
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
        self._ninja = ninja_path
        self._ccache = ccache
        self._broken: set[str] = set()  # keys of generated units that did not compile

    async def run(self, work: Work, flight: Flight) -> Finished:
        """Compile and link; by the next way, or without accelerators, as long as these may be to blame."""
        flight.phase = "queued"
        wanted = max(1, *(sum(unit.kept is None for unit in way.units) for way in work.ways.ways))
        jobs = work.request.environment.get("MAX_JOBS", "")
        if jobs.isdecimal() and int(jobs) > 0:
            wanted = min(wanted, int(jobs))
        await self._profiles.settle()
        behind_lean = ""  # what the compiler said behind the lean prelude
        waiting = time.monotonic()
        async with (
            self._permits.hold(wanted, flight.first and flight.first[0]) as permits,
            self._nvcc.compiling(work, flight) as cuda,
        ):
            if (now := time.monotonic()) - waiting > 0.001:
                work.timeline.add("wait", "wait for a place", waiting, now)
            for way in work.ways.ways:
                if not self._open(work, way):
                    continue
                await asyncio.to_thread(working.enter, work, way)
                finished = await self._attempt(work, flight, permits, cuda)
                if way.name == "stock" or finished.timed_out or cuda.failed or not self._goes_on(work, finished):
                    break
                behind_lean = finished.output if way.name == "lean" else behind_lean
        if behind_lean and finished.code == 0:
            self._missing.learn(behind_lean, work.request.cpp_sources)
        if finished.code == 0:
            self._counters.ways[work.way.name] += 1
            self._sampler.built()
            await asyncio.to_thread(self._offer, work)
        return Finished(finished.code, _INVALID_PCH.sub("", finished.output), finished.timed_out)

    def _offer(self, work: Work) -> None:
        """Offer what was built the lean way as a sample."""
        unit, stock = work.way.units[0], work.ways.ways[-1].units[0].text
        if work.way.name != "lean" or unit.pch is None or unit.text is None or stock is None or not self._sampler.wants:
            return
        request, plan = work.request, work.plan
        read = ninja.dependencies(work.tree / f"{unit.object}.d", work.folder)
        inputs = Inputs.of([path for path in read if not path.startswith(str(work.tree))], work.marker)
        flags = f"{plan.cflags} {plan.post_cflags}".strip()
        source = "\n".join(request.cpp_sources)
        self._sampler.offer(
            LeanSample(
                request.module_name, lean.maker(work.toolchain.digest), inputs, work.toolchain.argv, flags,
                self._environment(work), unit.pch, unit.text, stock, source, self._runner,
            )
        )  # fmt: skip

    def _goes_on(self, work: Work, finished: Finished) -> bool:
        """Whether the next way may succeed where this one failed."""
        if finished.code == 0:
            return False
        failed = {os.path.basename(name) for name in _FAILED.findall(finished.output)}
        if generated := [unit for unit in work.units if unit.generated and unit.object in failed]:
            if not _NOT_THE_USERS.search(finished.output):  # a full disk or a killed compiler may be gone the next time
                self._broken.update(unit.key for unit in generated)
            self._counters.way_fallbacks[f"{work.way.name}: the binding did not compile"] += 1
            log.warning("a generated unit did not compile, pybind11 takes its place:\n%s", finished.output[-3000:])
            return True
        if work.way.name == "lean":
            self._counters.way_fallbacks["lean: did not compile"] += 1
            return True
        if _NOT_THE_USERS.search(finished.output) or not working.users_error(work, finished.output):
            self._counters.way_fallbacks["direct: the binding did not compile"] += 1
            return True
        return False

    # ------------------------------------------------------------------ accelerators

    def _open(self, work: Work, way: Way) -> bool:
        """Choose the PCHs of a way; False when it is of no use: a PCH is not ready, or a unit known not to compile."""
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
        if (profile := self._profiles.find(wanted, unit.headers, exact=unit.exact, macros=unit.macros)) is None:
            return None
        unit.profile = profile
        unit.passed = unit.macros[len(profile.headers) - 1] if unit.macros else None
        return profile.header

    def wanted(self, request: Request, toolchain: Toolchain, plan: Plan) -> Wanted | None:
        """What the units of a plan want of a profile; None when none may serve them."""
        flags = f"{plan.cflags} {plan.post_cflags}".strip()
        if not self._config.pch or toolchain.family != "gcc" or relative_paths(flags):
            return None
        if any(word.startswith(("-include", "-imacros")) for word in split(flags)):
            return None  # what stands in front of all headers must stay there
        users = [word for text in request.extra_cflags for word in split(text)]
        if (toolkit := cuda.home(request.environment)) is not None:
            users.append(f"-isystem{toolkit}/include")  # what torch's headers for C++ never look into
        variables = keys.compile_environment(request, nvcc=False)
        return Wanted(toolchain, split(flags), users, variables, keys.build_environment(request))

    def _refused(self, work: Work, finished: Finished) -> None:
        """Note why a compiler did without a PCH that it was given, or failed with it."""
        if not (accelerated := [unit for unit in work.units if unit.pch is not None]):
            return
        wanted = self.wanted(work.request, work.toolchain, work.plan)
        if macro := _MACRO.search(finished.output):
            self._counters.pch_fallbacks[f"a header mentions {macro[1]}"] += 1
            if wanted is not None:
                self._profiles.mentioned(wanted, macro[1])
        elif _INVALID_PCH.search(finished.output):
            self._counters.pch_fallbacks["refused by the compiler"] += 1
        elif finished.code != 0 and _NOT_THE_USERS.search(finished.output):
            for unit in accelerated:
                if unit.profile is not None:
                    self._profiles.refused(unit.profile, "a compile failed with it")

    # ------------------------------------------------------------------ running

    async def _attempt(self, work: Work, flight: Flight, permits: int, cuda: Compiling) -> Finished:
        """One way; again with the compiler's own linker, and stock's again without PCH, when these are to blame."""
        fast = self._config.fast_linker and plain_libraries(work.request.extra_ldflags)
        work.linker = work.toolchain.linkers[0 if fast else -1]
        finished = await self._execute(work, flight, permits, cuda)
        if finished.code != 0 and not work.without_ccache and "ccache: error" in finished.output:
            self._counters.way_fallbacks["ccache failed"] += 1  # a home that cannot be written, say
            work.without_ccache = True
            finished = await self._execute(work, flight, permits, cuda)
        if not finished.timed_out and (finished.code < 0 or _KILLED.search(finished.output)):
            self._counters.way_fallbacks["a step was killed, and run again"] += 1
            finished = await self._execute(work, flight, permits, cuda)
        if finished.code != 0 and work.linker.option and _LINK_FAILED.search(finished.output):
            self._counters.linker_fallbacks[work.linker.option] += 1
            work.linker = work.toolchain.linkers[-1]
            finished = await self._execute(work, flight, permits, cuda)
        self._refused(work, finished)
        if blamed := await asyncio.to_thread(self._blamed, work, finished):
            for unit in blamed:
                unit.pch = None
            finished = await self._execute(work, flight, permits, cuda)
        self._count(work)
        return finished

    def _blamed(self, work: Work, finished: Finished) -> list[Unit]:
        """Units to compile again without a PCH: all that had one, where one may have failed; and those whose files have
        changed since it was seen that it may stand for what they begin with."""
        accelerated = [unit for unit in work.units if unit.pch is not None]
        if work.way.name == "stock" and finished.code != 0 and _NOT_THE_USERS.search(finished.output):
            return accelerated
        moved = [unit for unit in accelerated if unit.passed is not None]
        return [unit for unit in moved if working.opened(work, unit).macros != unit.macros]

    async def _execute(self, work: Work, flight: Flight, permits: int, cuda: Compiling) -> Finished:
        """Compile what is missing, and link; again without ccache when that could not know what it brought back."""
        finished = await self._run_steps(work, flight, permits, cuda)
        if not finished.timed_out and await asyncio.to_thread(self._ccache_was_blind, work):
            finished = await self._run_steps(work, flight, permits, cuda)
        return finished

    async def _run_steps(self, work: Work, flight: Flight, permits: int, cuda: Compiling) -> Finished:
        steps = self._steps(work)
        flight.phase, flight.done, flight.total = "compiling", 0, len(steps.compiles) + len(work.cuda_units) + 1
        await asyncio.to_thread(steps.write)
        output = ""
        if work.cuda_units:
            if steps.compiles:
                compiled = await self._ninja_run(work, flight, steps, permits, [unit.object for unit in steps.compiles])
                if compiled.code != 0 or compiled.timed_out:
                    return compiled
                output = compiled.output
            compiled = await cuda.finished()
            output += compiled.output
            if compiled.code != 0 or compiled.timed_out:
                return Finished(compiled.code, output, compiled.timed_out)
        finished = await self._ninja_run(work, flight, steps, permits, [])
        return Finished(finished.code, output + finished.output.replace(_NOTHING_TO_DO, ""), finished.timed_out)

    async def _ninja_run(
        self, work: Work, flight: Flight, steps: ninja.Steps, permits: int, targets: list[str]
    ) -> Finished:
        def on_line(line: str) -> None:
            if match := re.match(r"\[(\d+)/(\d+)\] ", line):
                flight.done = int(match[1]) - 1
                flight.phase = "linking" if match[1] == match[2] and not targets else "compiling"
            flight.output(line)

        # On few cores what is not on the way to the longest step gives way: the link waits for nvcc's front ends.
        started = time.monotonic()
        argv = steps.argv(self._ninja, permits, targets)
        finished = await self._runner.run(
            argv,
            cwd=work.tree,
            environment=self._environment(work),
            timeout=self._config.build_timeout,
            on_line=on_line,
            aside=bool(work.cuda_units and targets),
            reads=[unit.path for unit in work.units if unit.path is not None],
        )
        for span in ninja.logged(work.tree, finished.output):
            step = "link" if span.name == work.plan.target else "compile"
            work.timeline.add(step, f"{step} {span.name}", started + span.start, started + span.end)
        return finished

    def _steps(self, work: Work) -> ninja.Steps:
        plan = work.plan
        return ninja.Steps(
            tree=work.tree,
            compiler=work.toolchain.argv,
            cflags=plan.cflags,
            post_cflags=plan.post_cflags,
            ldflags=plan.ldflags,
            compiles=[self._compile(work, unit) for unit in work.units if unit.kept is None and not unit.cuda],
            objects=[u.object for u in work.units],
            target=plan.target,
            workdir=work.workdir,
            home=keys.home(work.request),
            linker=work.linker.option,
            link_dependencies=work.linker.says_what_it_read,
        )

    def _compile(self, work: Work, unit: Unit) -> ninja.Compile:
        inline = unit.text is not None
        source = str(work.tree / unit.source) if inline and work.workdir is not None else unit.source
        cached = unit.pch is None and self._search_state(work) is not None
        wrapper = [self._ccache] if cached and self._ccache is not None else []
        made = str(work.tree / unit.object) if work.workdir is not None else unit.object
        tells = assembler.option(f"{made}{assembler.SUFFIX}") if work.toolchain.assembler_tells else ""
        return ninja.Compile(source, unit.object, unit.pch, wrapper, unit.cflags, tells, unit.passed)

    def _search_state(self, work: Work) -> str | None:
        """What ccache has to know of the folders that are searched; None when it is not to be used."""
        if self._ccache is None or work.without_ccache or "CCACHE_DISABLE" in work.request.environment:
            return None
        if work.search_state is None:
            users, theirs = self._searched(work)
            work.search_state = ccache.search_state(users, theirs)
            work.without_ccache = work.search_state is None
        return work.search_state

    def _searched(self, work: Work) -> tuple[list[str], list[str]]:
        """The folders in which headers may be found: the caller's, and the toolchain's."""
        request, toolchain = work.request, work.toolchain
        words, variables = split(f"{work.plan.cflags} {work.plan.post_cflags}"), keys.search_environment(request)
        folders = lookups.header_search(words, toolchain.include_folders, variables)
        folders += [*filter(None, [keys.home(request)]), *map(os.path.dirname, request.sources)]
        found = [os.path.join(work.folder, folder) for folder in folders]
        theirs = [folder for folder in found if toolchain.owns(folder)]
        return [folder for folder in found if folder not in theirs and folder != str(work.tree)], theirs

    def _ccache_was_blind(self, work: Work) -> bool:
        """Whether an object came out of ccache that has to be compiled; it is removed then."""
        if self._ccache is None or work.without_ccache:
            return False
        users = [*self._searched(work)[0], str(work.tree)]
        for unit in work.units:
            made = work.tree / unit.object
            if unit.cuda or unit.kept is not None or unit.pch is not None:
                continue
            if ccache.was_blind(made, work.folder, unit.text, work.toolchain.owns, users):
                work.without_ccache = True
                made.unlink(missing_ok=True)
        return work.without_ccache

    def _environment(self, work: Work) -> dict[str, str]:
        state = self._search_state(work)
        return {**work.environment(), **ccache.settings(work.tree, work.toolchain.digest, state or "")}

    def _count(self, work: Work) -> None:
        for unit in work.units:
            if unit.kept is None and not unit.cuda and (work.tree / unit.object).exists():
                self._counters.compiles += 1
                self._counters.pch_used += unit.pch is not None
        self._counters.ccache_hits += ccache.hits(work.tree)
