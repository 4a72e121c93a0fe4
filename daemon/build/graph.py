"""Run the steps of one way of a flight as one graph: ninja compiles the C++ units and links, CUDA
units are compiled beside it, and each unit waits for a permit of the flight's share.

When a unit fails, nothing new begins, and what runs of its kind is waited for, as ninja does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from dataclasses import dataclass, replace

from warmcc.config import Config
from warmcc.daemon.build import ccache
from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.build.flight import Flight
from warmcc.daemon.build.gates import Gates
from warmcc.daemon.build.work import Work
from warmcc.daemon.closure import assembler_reads
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished, Runner
from warmcc.daemon.toolchain import compiler_heap, lookups, ninja
from warmcc.daemon.toolchain.flags import split

_CHOOSING_SECONDS = 1.0
_NOTHING_TO_DO = "ninja: no work to do.\n"
_MARK = re.compile(r"^\[\d+/\d+\] ")


@dataclass(frozen=True)
class _Run:
    """One run of ninja, and then the next in the same tree."""

    work: Work
    flight: Flight
    steps: ninja.Steps
    gates: Gates | None


class Graph:
    """Runs the steps of flights. One per daemon."""

    def __init__(
        self, config: Config, runner: Runner, permits: Permits, ninja_path: str, ccache: str | None
    ) -> None:
        self._config = config
        self._runner = runner
        self._permits = permits
        self._ninja = ninja_path
        self._ccache = ccache

    @staticmethod
    def ccache_hits(work: Work) -> int:
        """How many objects of a flight came out of ccache."""
        return ccache.hits(work.tree)

    async def run(
        self, work: Work, flight: Flight, share: Share | None, cuda: Compiling
    ) -> Finished:
        """Compile what is missing, and link; again without ccache when that could not know what it
        brought back. Without a ``share`` nobody waits for it, and it gives way to what somebody
        waits for."""
        finished = await self._run(work, flight, share, cuda)
        if not finished.timed_out and await asyncio.to_thread(self._ccache_was_blind, work):
            finished = await self._run(work, flight, share, cuda)
        return finished

    async def _run(
        self, work: Work, flight: Flight, share: Share | None, cuda: Compiling
    ) -> Finished:
        steps = self._steps(work)
        gates = (
            None
            if share is None
            else Gates(
                work.tree, len(steps.compiles) + 1, self._permits, share,
                _plain_commands(work, steps), cuda.plain_have_begun.set,
            )
        )  # fmt: skip
        links = int(work.plan.links)
        flight.expect(len(steps.compiles) + len(work.cuda_units) + links, cuda.ended)
        await asyncio.to_thread(steps.write, None if gates is None else gates.command)
        run = _Run(work, flight, steps, gates)
        output = ""
        if work.cuda_units:
            compiled = await self._compile_all(run, cuda)
            if compiled.code != 0 or compiled.timed_out:
                return compiled
            output = compiled.output
        linked = await self._ninja_run(run, [])
        return Finished(
            linked.code, output + linked.output.replace(_NOTHING_TO_DO, ""), linked.timed_out
        )

    async def _compile_all(self, run: _Run, cuda: Compiling) -> Finished:
        """The units of both kinds, side by side."""
        targets = [unit.object for unit in run.steps.compiles]
        cuda.plain = _plain(run.work)
        cuda.plain_is_known.set()
        if not cuda.plain or run.gates is None:
            cuda.plain_have_begun.set()
        both = [asyncio.create_task(cuda.finished())]
        output = ""
        try:
            if targets:
                if not cuda.plain:  # they shall not take a place of the longest
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(cuda.chosen.wait(), _CHOOSING_SECONDS)
                both.append(asyncio.create_task(self._ninja_run(run, targets, cuda)))
            for next_one in asyncio.as_completed(both):
                compiled = await next_one
                output += compiled.output
                if compiled.code != 0 or compiled.timed_out:
                    return Finished(compiled.code, output, compiled.timed_out)
                cuda.plain_have_begun.set()  # also where nothing was left to do
            return Finished(0, output)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _ninja_run(
        self, run: _Run, targets: list[str], cuda: Compiling | None = None
    ) -> Finished:
        """Make ``targets``, or everything; beside CUDA units, which may have it stand still."""
        work, flight, gates = run.work, run.flight, run.gates
        printed: list[str] = []

        def on_line(line: str) -> None:
            line = line if gates is None else gates.without(line)
            if _MARK.match(line):
                line = flight.mark() + _MARK.sub("", line)
            printed.append(line)
            flight.output(line)

        started = time.monotonic()
        argv = run.steps.argv(self._ninja, gates.share.most if gates is not None else 1, targets)
        reads = [path for unit in work.units if (path := work.found[unit].path) is not None]
        with contextlib.ExitStack() as stack:
            step = None if cuda is None else cuda.beside
            if gates is None:
                step = stack.enter_context(self._runner.background.step())
            aside = gates is None or (cuda is not None and not cuda.plain)
            running = self._runner.run(
                argv, cwd=work.tree, environment=self.environment(work),
                timeout=self._config.build_timeout,
                on_line=on_line, aside=aside, step=step, reads=reads,
            )  # fmt: skip
            finished = await (running if gates is None else gates.serve(running))
        self._note(run, started, ninja.logged(work.tree, finished.output))
        rest = finished.output[finished.output.rfind("\n") + 1 :]
        return Finished(finished.code, "".join(printed) + rest, finished.timed_out)

    @staticmethod
    def _note(run: _Run, started: float, logged: list[ninja.Logged]) -> None:
        """Note when the commands ran: between their gates, or else by ninja's log, which begins
        with ninja.
        """
        numbers = {
            os.path.basename(unit.object): number for number, unit in enumerate(run.steps.compiles)
        }
        ran = run.gates.ran if run.gates is not None else {}
        for span in logged:
            links = run.work.plan.links and span.name == run.work.plan.target
            kind = "link" if links else "compile"
            logged_times = (started + span.start, started + span.end)
            began, ended = ran.get(numbers.get(span.name, len(numbers)), logged_times)
            run.work.timeline.add(kind, f"{kind} {span.name}", began, ended)

    def _steps(self, work: Work) -> ninja.Steps:
        plan = work.plan
        return ninja.Steps(
            tree=work.tree,
            compiler=work.toolchain.argv,
            cflags=plan.cflags,
            post_cflags=plan.post_cflags,
            ldflags=plan.ldflags,
            compiles=[
                step
                for unit in work.units
                if not work.has(unit) and not unit.cuda
                for step in self._compiles(work, unit)
            ],
            objects=[u.object for u in work.units],
            target=plan.target,
            workdir=work.workdir,
            home=requested.home(work.request),
            linker=work.taken.linker.option,
            link_dependencies=work.taken.linker.says_what_it_read,
        )

    def _compiles(self, work: Work, unit: Unit) -> list[ninja.Compile]:
        """The steps of a unit: it may be parsed first."""
        inline = unit.text is not None
        source = (
            str(work.tree / unit.source) if inline and work.workdir is not None else unit.source
        )
        attempt = work.attempt(unit)
        cached = attempt.is_plain and self._search_state(work) is not None
        wrapper = [self._ccache] if cached and self._ccache is not None else []
        made = str(work.tree / unit.object) if work.workdir is not None else unit.object
        options = [] if attempt.pch is not None else self._heap(work, work.cflags(unit))
        if work.toolchain.assembler_tells:
            options.append(assembler_reads.option(f"{made}{assembler_reads.SUFFIX}"))
        compiled = ninja.Compile(
            source, unit.object, attempt.pch, wrapper, unit.cflags, options, attempt.passed
        )
        if (behind := attempt.text) is None:
            return [compiled]
        parsed = ninja.Compile(
            source, f"{unit.object}.parsed", behind.prelude, cflags=behind.cflags, parses=True
        )
        return [parsed, replace(compiled, headers=behind.headers, after=parsed.object)]

    def _heap(self, work: Work, cflags: str) -> list[str]:
        """The options that give g++ room, as long as none of its compilers was killed."""
        if work.was_killed or work.toolchain.family != "gcc":
            return []
        flags = (*work.toolchain.argv[1:], *split(f"{cflags} {work.plan.post_cflags}"))
        return compiler_heap.words(flags, compiler_heap.size(self._config, self._permits.limit))

    def _search_state(self, work: Work) -> str | None:
        """What ccache must know of the folders that are searched; None where it is not used."""
        if (
            self._ccache is None
            or work.without_ccache
            or "CCACHE_DISABLE" in work.request.environment
        ):
            return None
        if work.search_state is None:
            users, theirs = self._searched(work)
            work.search_state = ccache.search_state(users, theirs)
            work.without_ccache = work.search_state is None
        return work.search_state

    def _searched(self, work: Work) -> tuple[list[str], list[str]]:
        """The folders in which headers may be found: the caller's, and the toolchain's."""
        request, toolchain = work.request, work.toolchain
        words, variables = (
            split(f"{work.plan.cflags} {work.plan.post_cflags}"),
            requested.search_environment(request),
        )
        folders = lookups.header_search(words, toolchain.include_folders, variables)
        folders += [
            *filter(None, [requested.home(request)]),
            *map(os.path.dirname, request.sources),
        ]
        found = [os.path.join(work.folder, folder) for folder in folders]
        theirs = [folder for folder in found if toolchain.owns(folder)]
        return [
            folder for folder in found if folder not in theirs and folder != str(work.tree)
        ], theirs

    def _ccache_was_blind(self, work: Work) -> bool:
        """Whether an object came out of ccache that has to be compiled; it is removed then."""
        if self._ccache is None or work.without_ccache:
            return False
        users = [*self._searched(work)[0], str(work.tree)]
        for unit in work.units:
            made = work.tree / unit.object
            if unit.cuda or work.has(unit) or not work.attempt(unit).is_plain:
                continue
            if ccache.was_blind(made, work.folder, unit.text, work.toolchain.owns, users):
                work.without_ccache = True
                made.unlink(missing_ok=True)
        return work.without_ccache

    def environment(self, work: Work) -> dict[str, str]:
        state = self._search_state(work)
        return {
            **work.environment(),
            **ccache.settings(work.tree, work.toolchain.digest, state or ""),
        }


def _plain_commands(work: Work, steps: ninja.Steps) -> set[int]:
    """The numbers of commands that begin before CUDA units that still wait: most of these take less
    time, and the link would wait for what begins last."""
    plain = {unit.object for unit in _plain(work)}
    return {number for number, one in enumerate(steps.compiles) if one.object in plain}


def _plain(work: Work) -> list[Unit]:
    """The user's C++ units that are compiled as they stand, which may take longer than nvcc's front
    ends. All others take a second or two, and give way to these, for which the link waits."""
    units = [unit for unit in work.units if not (unit.cuda or unit.generated or work.has(unit))]
    return [unit for unit in units if work.attempt(unit).is_plain]
