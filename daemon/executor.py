"""Run the steps of a flight: choose accelerators, hold permits, let ninja compile and link, fall back when an
accelerator is to blame.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from warmcc.config import Config
from warmcc.daemon import keys, ninja
from warmcc.daemon.counters import Counters
from warmcc.daemon.process import Finished, Runner
from warmcc.daemon.profiles import prelude
from warmcc.daemon.profiles.pch import Profiles
from warmcc.daemon.scheduler import Flight, Permits
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.flags import relative_paths
from warmcc.daemon.work import Work
from warmcc.daemon.zygote.plan import Plan
from warmcc.request import Request

_NOT_THE_USERS = re.compile(
    r"internal compiler error|prelude\.h|\.gch\b|Killed signal|[Oo]ut of memory|[Cc]annot allocate memory"
    r"|No space left on device|ccache: error"
)
_INVALID_PCH = re.compile(r"^.*prelude\.h.*(?:Winvalid-pch|not used because|created by).*\n?", re.M)


class Executor:
    """Executes plans. One per daemon."""

    def __init__(
        self, config: Config, profiles: Profiles, runner: Runner, permits: Permits, counters: Counters,
        ninja_path: str, ccache: str | None,
    ) -> None:  # fmt: skip
        self._config = config
        self._profiles = profiles
        self._runner = runner
        self._permits = permits
        self._counters = counters
        self._ninja = ninja_path
        self._ccache = ccache

    def _steps(self, work: Work) -> ninja.Steps:
        plan = work.plan
        wrapper: list[str] = []
        if self._ccache is not None and "CCACHE_DISABLE" not in work.request.environment:
            wrapper = [self._ccache]
        return ninja.Steps(
            tree=work.tree,
            compiler=work.toolchain.argv,
            cflags=plan.cflags,
            post_cflags=plan.post_cflags,
            ldflags=plan.ldflags,
            compiles=[ninja.Compile(u.source, u.object, u.pch) for u in work.units if u.kept is None],
            objects=[u.object for u in work.units],
            target=plan.target,
            workdir=work.workdir,
            home=keys.home(work.request),
            wrapper=wrapper,
            link_dependencies=work.toolchain.linker_dependency_file,
        )

    async def run(self, work: Work, flight: Flight) -> tuple[Finished, ninja.Steps]:
        """Compile and link; once more without accelerators when they are to blame."""
        wanted = max(1, sum(unit.kept is None for unit in work.units))
        jobs = work.request.environment.get("MAX_JOBS", "")
        if jobs.isdigit() and int(jobs) > 0:
            wanted = min(wanted, int(jobs))
        flight.phase = "queued"
        async with self._permits.hold(wanted) as permits:
            self._choose_pch(work)
            steps = self._steps(work)
            finished = await self._execute(work, steps, flight, permits)
            accelerated = [unit for unit in work.units if unit.pch is not None]
            if accelerated and (_INVALID_PCH.search(finished.output) or finished.code != 0):
                cause = "refused by the compiler" if _INVALID_PCH.search(finished.output) else "compile failed"
                if finished.code == 0 or _NOT_THE_USERS.search(finished.output):
                    self._counters.pch_fallbacks[cause] += 1
                if finished.code != 0 and _NOT_THE_USERS.search(finished.output):
                    for unit in accelerated:
                        unit.pch = None
                    steps = self._steps(work)
                    finished = await self._execute(work, steps, flight, permits)
            self._count(work)
        return Finished(finished.code, _INVALID_PCH.sub("", finished.output), finished.timed_out), steps

    async def _execute(self, work: Work, steps: ninja.Steps, flight: Flight, permits: int) -> Finished:
        flight.phase, flight.done, flight.total = "compiling", 0, len(steps.compiles) + 1
        await asyncio.to_thread(steps.write)

        def on_line(line: str) -> None:
            if match := re.match(r"\[(\d+)/(\d+)\] ", line):
                flight.done = int(match[1]) - 1
                flight.phase = "linking" if match[1] == match[2] else "compiling"
            flight.output(line)

        return await self._runner.run(
            steps.argv(self._ninja, permits),
            cwd=work.tree,
            environment=self._environment(work),
            timeout=self._config.build_timeout,
            on_line=on_line,
        )

    def _environment(self, work: Work) -> dict[str, str]:
        temporary = work.tree / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            **keys.build_environment(work.request),
            "TMPDIR": str(temporary),
            "CCACHE_DEPEND": "1",
            "CCACHE_SLOPPINESS": "pch_defines,time_macros",
            "CCACHE_PCH_EXTSUM": "1",
            "CCACHE_COMPILERCHECK": f"string:{work.toolchain.digest}",
            "CCACHE_STATSLOG": str(work.tree / "ccache.log"),
        }

    def _count(self, work: Work) -> None:
        for unit in work.units:
            if unit.kept is None and (work.tree / unit.object).exists():
                self._counters.compiles += 1
                self._counters.pch_used += unit.pch is not None
        try:
            text = (work.tree / "ccache.log").read_text()
        except OSError:
            return
        self._counters.ccache_hits += len(re.findall(r"^(?:direct|preprocessed)_cache_hit$", text, re.M))

    def _choose_pch(self, work: Work) -> None:
        """Give each unit that is to be compiled the PCH of its profile, where there is one that is ready."""
        flags = f"{work.plan.cflags} {work.plan.post_cflags}".strip()
        if not self._config.pch or work.toolchain.family != "gcc" or relative_paths(flags):
            return
        for unit in work.units:
            if unit.kept is not None:
                continue
            found = prelude.of_source(unit.text if unit.text is not None else _head(unit.source))
            if found is not None:
                unit.pch = self.profile(work.request, work.toolchain, work.plan, found)

    def profile(self, request: Request, toolchain: Toolchain, plan: Plan, text: str) -> Path | None:
        """The header whose PCH stands for the prelude ``text``, or None; what is missing is built in the background."""
        flags = prelude.flags(f"{plan.cflags} {plan.post_cflags}")
        found = self._profiles.find(
            toolchain, flags, text, keys.keyed_environment(request), keys.build_environment(request)
        )
        return found.header if found is not None else None


def _head(source: str) -> str:
    """The first 64 KiB of a source file; a file that cannot be read is the compiler's to complain about."""
    try:
        with open(source, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
