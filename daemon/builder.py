"""From a request to its artifact: find it in the store, or plan it, run the steps and publish the result.

The way of a miss: stock's own plan from a zygote → a staging tree → objects that the store has already → ninja
compiles the rest and links → closures are recorded → objects and the artifact are published. Warm state (the PCH,
ccache) only makes steps faster; a step that fails with it for a reason that is not the user's code runs again without.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmcc.config import Config
from warmcc.daemon import diagnostics, keys, ninja
from warmcc.daemon.closure import ChangedDuringBuild, Closure, Closures, Marker
from warmcc.daemon.counters import Counters
from warmcc.daemon.process import Finished, Runner
from warmcc.daemon.profiles import prelude
from warmcc.daemon.profiles.pch import Profiles
from warmcc.daemon.scheduler import Answer, Flight, Permits
from warmcc.daemon.store import Result, Store
from warmcc.daemon.toolchain import Toolchain, Toolchains
from warmcc.daemon.toolchain.flags import relative_paths
from warmcc.daemon.zygote.plan import Plan
from warmcc.daemon.zygote.pool import StockError, ZygotePool
from warmcc.protocol import Built, Declined, Failed
from warmcc.request import Request

log = logging.getLogger(__name__)

BUILD_DIRECTORY = "@BUILD_DIRECTORY@"  # stands for the caller's build directory in kept texts
SYSTEM_ROOTS = ("/usr", "/lib", "/lib64", "/opt")  # what the linker reads below these is the system's, not the user's
_NOT_THE_USERS = re.compile(
    r"internal compiler error|prelude\.h|\.gch\b|Killed signal|[Oo]ut of memory|[Cc]annot allocate memory"
    r"|No space left on device|ccache: error"
)
_INVALID_PCH = re.compile(r"^.*prelude\.h.*(?:Winvalid-pch|not used because|created by).*\n?", re.M)


class Unpublishable(Exception):
    """The result is right for its caller and must not be kept; the text says why."""


@dataclass
class Unit:
    """One source file on its way to one object. ``text`` is an inline source's, None for a file."""

    source: str
    object: str
    text: str | None
    key: str
    kept: Result | None = None
    closure: Closure | None = None
    pch: Path | None = None


@dataclass
class Work:
    """What one flight works on; lives as long as its staging tree."""

    request: Request
    toolchain: Toolchain
    key: str
    plan: Plan
    tree: Path
    marker: Marker
    units: list[Unit] = field(default_factory=list)
    lines: diagnostics.LineMap = field(default_factory=diagnostics.LineMap)

    @property
    def workdir(self) -> Path | None:
        found = keys.workdir(self.request)
        return Path(found) if found else None

    @property
    def folder(self) -> Path:
        """The directory in which the compilers run, which relative dependencies are relative to."""
        return self.workdir or self.tree


class Builder:
    """Turns requests into answers. One per daemon."""

    def __init__(
        self, config: Config, store: Store, closures: Closures, toolchains: Toolchains, zygotes: ZygotePool,
        profiles: Profiles, runner: Runner, permits: Permits, counters: Counters, ninja_path: str, ccache: str | None,
    ) -> None:  # fmt: skip
        self._config = config
        self._store = store
        self._closures = closures
        self._toolchains = toolchains
        self._zygotes = zygotes
        self._profiles = profiles
        self._runner = runner
        self._permits = permits
        self._counters = counters
        self._ninja = ninja_path
        self._ccache = ccache

    async def identify(self, request: Request) -> Toolchain:
        """The toolchain of a request. Raises toolchain.MissingCompiler."""
        cxx = request.environment.get("CXX", "c++")
        return await self._toolchains.identify(keys.build_environment(request), cxx, request.interpreter)

    async def find(self, request: Request, key: str) -> Built | None:
        """The hit for a request key, complete and checked, or None."""
        started = time.monotonic()
        found = await asyncio.to_thread(self._store.find, "artifact", key, self._closures)
        if found is None:
            return None
        result, path = found
        return self._built(request, result, path, "hit", started)

    @staticmethod
    def _built(request: Request, result: Result, path: Path, outcome: Any, started: float) -> Built:
        folder = request.build_directory
        if folder is None and (root := request.environment.get("TORCH_EXTENSIONS_DIR")):
            folder = os.path.join(root, request.name)
        sources = {name: text.replace(BUILD_DIRECTORY, folder or "") for name, text in result.meta["sources"].items()}
        return Built(
            id=0,
            path=str(path),
            outcome=outcome,
            seconds=time.monotonic() - started,
            commands=result.meta["commands"] if request.verbose else [],
            sources=sources if folder else {},
            warnings=result.meta["warnings"],
        )

    async def build(self, request: Request, toolchain: Toolchain, flight: Flight) -> Answer:
        """Build what a flight is for. Never raises for what a request can cause."""
        started = time.monotonic()
        # Between the look-up that missed and this flight another one may have landed.
        if (hit := await self.find(request, flight.key)) is not None:
            return hit
        flight.phase = "planning"
        tree = await asyncio.to_thread(self._store.staging)
        try:
            return await self._build_in(request, toolchain, flight, tree, started)
        except OSError as error:
            log.exception("build of %s failed", request.module_name)
            return Declined(0, f"{error.strerror or error} ({error.filename or 'in the store'})", expected=False)
        finally:
            await asyncio.shield(asyncio.to_thread(self._store.discard, tree))

    async def _build_in(
        self, request: Request, toolchain: Toolchain, flight: Flight, tree: Path, started: float
    ) -> Answer:
        plan = await self._zygotes.plan(request)
        if isinstance(plan, StockError):
            return Failed(0, plan.type, plan.message, errno=plan.errno, filename=plan.filename)
        if plan.unsupported is not None:
            return Declined(0, plan.unsupported, expected=True)
        work = await asyncio.to_thread(self._prepare, request, toolchain, flight.key, plan, tree)
        finished, steps = await self._run(work, flight)
        if finished.timed_out or finished.code != 0:
            await asyncio.to_thread(self._publish_units, work)
            return self._failure(work, finished)
        self._counters.links += 1
        meta = {
            "commands": ninja.commands(finished.output),
            "sources": self._sources(work),
            "warnings": plan.warnings,
        }
        target = tree / steps.target
        try:
            result, path = await asyncio.to_thread(self._publish, work, target, meta)
        except (Unpublishable, ChangedDuringBuild) as reason:
            log.info("%s is not kept: %s", request.module_name, reason)
            self._counters.unpublished += 1
            result, path = await asyncio.to_thread(self._hand_over, work, target, meta)
        return self._built(request, result, path, "miss", started)

    # ------------------------------------------------------------------ before the steps

    def _prepare(self, request: Request, toolchain: Toolchain, key: str, plan: Plan, tree: Path) -> Work:
        """Write the inline source, find the units that the store has, and take the time."""
        work = Work(request, toolchain, key, plan, tree, Marker.take(tree, request.sources))
        for unit in plan.units:
            name = os.path.basename(unit.source)
            text = plan.sources.get(name) if request.call == "load_inline" else None
            source = unit.source
            if text is not None:
                (tree / name).write_text(text, encoding="utf-8", newline="")
                source = name if work.workdir is None else str(tree / name)
                work.lines = diagnostics.LineMap.of(text, request.cpp_sources)
            identity = keys.unit_key(
                plan.cflags, plan.post_cflags, source if text is None else name, text, request, toolchain
            )
            work.units.append(Unit(source, unit.object, text, identity))
        if len({unit.object for unit in work.units}) == len(work.units):  # else ninja says what is wrong
            for unit in work.units:
                self._reuse(unit, tree)
        return work

    def _reuse(self, unit: Unit, tree: Path) -> None:
        found = self._store.find("unit", unit.key, self._closures)
        if found is not None:
            unit.kept, path = found
            unit.closure = unit.kept.closure
            (tree / unit.object).symlink_to(path)
            self._counters.units_reused += 1

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

    # ------------------------------------------------------------------ the steps

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
            wrapper=wrapper,
            link_dependencies=work.toolchain.linker_dependency_file,
        )

    async def _run(self, work: Work, flight: Flight) -> tuple[Finished, ninja.Steps]:
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

    # ------------------------------------------------------------------ after the steps

    def _publish_units(self, work: Work) -> None:
        """Keep the objects that were compiled. One whose inputs changed meanwhile is passed over."""
        for unit in work.units:
            made = work.tree / unit.object
            if unit.kept is not None or not made.exists():
                continue
            try:
                read = ninja.dependencies(work.tree / f"{unit.object}.d", work.folder)
                unit.closure = self._record(work, [path for path in read if not self._ours(work, path)])
                self._store.publish("unit", unit.key, made, "", unit.closure, {})
            except (ChangedDuringBuild, OSError) as reason:
                unit.closure = None
                log.info("object %s of %s is not kept: %s", unit.object, work.request.module_name, reason)

    def _ours(self, work: Work, path: str) -> bool:
        mine = (str(work.tree) + os.sep, str(self._store.root) + os.sep, str(self._profiles.root) + os.sep)
        return path.startswith(mine)

    def _record(self, work: Work, paths: list[str], roots: tuple[str, ...] = ()) -> Closure:
        return self._closures.record(
            paths,
            toolchain_roots=[*work.toolchain.roots, *roots],
            include_dirs=work.request.extra_include_paths,
            started=work.marker,
        )

    def _publish(self, work: Work, target: Path, meta: dict[str, Any]) -> tuple[Result, Path]:
        self._publish_units(work)
        closures = [unit.closure for unit in work.units]
        if any(closure is None for closure in closures):
            raise Unpublishable("an input changed while it was compiled")
        closures.append(self._link_closure(work, target))
        closure = Closure.union([closure for closure in closures if closure is not None])
        return self._store.publish("artifact", work.key, target, target.name, closure, meta)

    def _link_closure(self, work: Work, target: Path) -> Closure | None:
        """What the linker read: libraries of the toolchain by stat, the user's own by content."""
        if not work.toolchain.linker_dependency_file:
            if work.request.extra_ldflags:
                raise Unpublishable("the linker does not say which libraries it read")
            return None
        read = ninja.dependencies(target.with_name(target.name + ".link.d"), work.folder)
        objects = {str(work.folder / unit.object) for unit in work.units} | {
            str(work.tree / u.object) for u in work.units
        }
        return self._record(work, [p for p in read if p not in objects and not self._ours(work, p)], SYSTEM_ROOTS)

    def _hand_over(self, work: Work, target: Path, meta: dict[str, Any]) -> tuple[Result, Path]:
        """Give the caller a result that is not to be found again: published under a key that nobody asks for."""
        nobody = keys.unpublished_key(work.key)
        return self._store.publish("artifact", nobody, target, target.name, Closure.union([]), meta)

    def _sources(self, work: Work) -> dict[str, str]:
        """What stock would have left in the build directory, as texts."""
        scratch = work.plan.scratch.rstrip("/")
        return {**work.plan.sources, "build.ninja": work.plan.ninja.replace(scratch, BUILD_DIRECTORY)}

    def _failure(self, work: Work, finished: Finished) -> Failed:
        """The compiler's text behind stock's prefix, in the user's lines."""
        text = diagnostics.to_user_lines(finished.output, work.lines)
        message = f"Error building extension '{work.request.module_name}': "
        if finished.timed_out:
            message += f"gave up after {self._config.build_timeout:g} s\n"
        return Failed(0, "RuntimeError", message + text, diagnostics=diagnostics.parse(text))


def _head(source: str) -> str:
    """The first 64 KiB of a source file; a file that cannot be read is the compiler's to complain about."""
    try:
        with open(source, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""


def ninja_executable() -> str | None:
    """ninja of this Python's own package, or of PATH."""
    try:
        import ninja as package

        bundled = os.path.join(package.BIN_DIR, "ninja")
        if os.access(bundled, os.X_OK):
            return bundled
    except ImportError:
        pass
    return shutil.which("ninja")
