"""From a request to its artifact: find it, or plan, run the steps, and publish the result.

The way of a miss: stock's own plan from a zygote → a staging tree → objects that the store has
already → ninja compiles the rest and links → closures are recorded → objects and the artifact are
published. Warm state (the PCH, ccache) only makes steps faster; a step that fails with it for a
reason that is not the user's code runs again without.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from warmcc.daemon.build import diagnostics, failures
from warmcc.daemon.build.executor import Executor
from warmcc.daemon.build.flight import Answer, Flight
from warmcc.daemon.build.publisher import Publisher
from warmcc.daemon.build.timeline import Timeline
from warmcc.daemon.build.work import Work, prepare
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closures
from warmcc.daemon.pch.lean import Missing
from warmcc.daemon.plan import keys, requested, sandboxed, ways
from warmcc.daemon.plan.policy import Policy, refusal
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.ways import Ways
from warmcc.daemon.plan.zygotes import StockError, ZygoteFailed, ZygotePool
from warmcc.daemon.store import SETTLED_SECONDS, Result, Store
from warmcc.daemon.store.shared import SharedStore
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.runner import Finished
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.daemon.system.trails import Paths
from warmcc.daemon.toolchain import MissingCompiler, Toolchain, Toolchains, ninja, shell
from warmcc.daemon.toolchain.identity import resolve
from warmcc.protocol import BUILD_DIRECTORY, Built, Declined, Failed
from warmcc.request import Request

log = logging.getLogger(__name__)

# Stock may have these errors, too
_NOT_STOCKS = errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM


class Builder:
    """Turns requests into answers.
    One per daemon. ``on_built`` hears of each request that had to be compiled."""

    def __init__(
        self, store: Store, closures: Closures, toolchains: Toolchains, zygotes: ZygotePool,
        executor: Executor, publisher: Publisher, counters: Counters, missing: Missing,
        switches: frozenset[str], shared: SharedStore | None, policy: Policy | None,
        sandbox: Sandbox | None,
    ) -> None:  # fmt: skip
        self._sandbox = sandbox
        self._store = store
        self._closures = closures
        self._toolchains = toolchains
        self._zygotes = zygotes
        self._executor = executor
        self._publisher = publisher
        self._counters = counters
        self._missing = missing
        self._switches = switches
        self._shared = shared
        self._policy = policy
        self.on_built: Callable[[Request, Toolchain], None] | None = None
        self._settling: set[asyncio.Task[None]] = set()

    async def identify(self, request: Request) -> Toolchain:
        """The toolchain of a request. Raises toolchain.MissingCompiler, sandboxed.Unreadable."""
        if (
            self._sandbox is not None
            and (reason := sandboxed.refused(self._sandbox, request)) is not None
        ):
            raise sandboxed.Unreadable(reason)
        cxx = request.environment.get("CXX", "c++")
        return await self._toolchains.identify(
            requested.build_environment(request),
            cxx,
            request.interpreter,
            with_cuda=requested.with_cuda(request),
        )

    def paths(self, request: Request, toolchain: Toolchain) -> Paths | None:
        """The paths that a hit depends on beside its closure; None when it depends on more."""
        if self._sandbox is not None or self._policy is not None:
            return None
        return self._toolchains.paths(
            toolchain, requested.build_environment(request), request.environment.get("CXX", "c++")
        )

    async def find(
        self, key: str, *, publish: bool, page: int = 0, paths: Paths | None = None
    ) -> Built | None:
        """The hit for a request key, complete and checked, or None.
        ``publish``: it is for everybody. ``page``: what the page showed before anything was
        looked at, ``paths`` among it; the client may rely on it if it can."""
        started = time.monotonic()
        found = await asyncio.to_thread(self._find, key, publish)
        if found is None:
            return None
        result, path = found
        built = self._built(result, path, "hit", started)
        if page and paths is not None:
            watched = await asyncio.to_thread(self._closures.steady, result.closure, paths)
            if watched is not None:
                built.page, built.watched = page, list(watched)
        return built

    def _find(self, key: str, publish: bool) -> tuple[Result, Path] | None:
        found = self._store.find("artifact", key, self._closures)
        if self._shared is not None:
            if found is None:
                return self._shared.find(key)
            self._shared.offer(key, *found, asked=publish)
        return found

    @staticmethod
    def _built(
        result: Result, path: Path, outcome: Literal["hit", "miss"], started: float
    ) -> Built:
        meta = result.meta
        return Built(
            0, str(path), outcome, time.monotonic() - started, meta["commands"], meta["sources"],
            meta["warnings"], meta["way"], files=result.closure.files,
        )  # fmt: skip

    async def build(self, request: Request, toolchain: Toolchain, flight: Flight) -> Answer:
        """Build what a flight is for. Never raises for what a request can cause."""
        started = time.monotonic()
        # Between the look-up that missed and this flight another one may have landed.
        if (hit := await self.find(flight.key, publish=flight.publish)) is not None:
            return hit
        flight.stale = await asyncio.to_thread(self._stale, flight.key)
        flight.inputs = keys.readable(request, toolchain)
        flight.phase = "planning"
        tree = await self._staging()
        try:
            answer = await self._build_in(request, toolchain, flight, tree, started)
            if isinstance(answer, Built) and self.on_built is not None:
                self.on_built(request, toolchain)
            return answer
        except ZygoteFailed as error:
            return Declined(0, str(error), expected=False)
        except OSError as error:
            log.exception("build of %s failed", request.module_name)
            return Declined(
                0, f"{error.strerror or error} ({error.filename or 'in the store'})", expected=False
            )
        finally:
            await asyncio.shield(asyncio.to_thread(self._store.discard, tree))

    async def _staging(self) -> Path:
        """A new staging tree. Whoever cancels this while it is being made leaves none behind."""
        making = asyncio.ensure_future(asyncio.to_thread(self._store.staging))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(self._discard_made)
            raise

    def _discard_made(self, making: asyncio.Future[Path]) -> None:
        if not making.cancelled() and making.exception() is None:
            self._store.discard(making.result())

    async def _build_in(
        self, request: Request, toolchain: Toolchain, flight: Flight, tree: Path, started: float
    ) -> Answer:
        flight.timeline = Timeline(started)
        with flight.timeline.span("plan"):
            plan = await self._zygotes.plan(request)
        if isinstance(plan, StockError):
            if plan.errno in _NOT_STOCKS:
                return Declined(
                    0, f"{plan.message} while planning in {self._store.root}", expected=False
                )
            return Failed(0, plan.type, plan.message, errno=plan.errno, filename=plan.filename)
        if plan.unsupported is not None:
            return Declined(0, plan.unsupported, expected=True)
        if (reason := _foreign(plan, request, toolchain)) is not None:
            return Declined(0, reason, expected=False)
        if self._policy is not None and (refused := self._policy.why_not(plan)) is not None:
            self._counters.refused[refused] += 1
            return refusal(refused)
        chosen = ways.choose(request, plan, toolchain, self._missing, self._switches)
        self._note(chosen)
        work = await asyncio.to_thread(
            prepare, request, toolchain, flight.key, plan, chosen, tree, self._store,
            self._closures, flight.timeline, follows=self._sandbox is None,
        )  # fmt: skip
        finished = await self._executor.run(work, flight)
        self._counters.units_reused += sum(unit.kept is not None for unit in work.units)
        if (reason := failures.why_stock(finished, str(self._store.root))) is not None:
            return Declined(0, reason, expected=False)
        if finished.timed_out or finished.code != 0:
            await asyncio.to_thread(self._publisher.units, work)
            return self._failure(work, finished)
        self._counters.links += 1
        meta = {
            "commands": ninja.commands(finished.output),
            "sources": self._sources(work),
            "warnings": plan.warnings,
            "way": self._told(work),
        }
        with flight.timeline.span("publish"):
            result, path = await self._publish(work, flight, tree / plan.target, meta)
        built = self._built(result, path, "miss", started)
        built.steps = flight.timeline.steps()
        flight.way = built.way
        told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in built.steps.items())
        log.info(
            "built %s in %.2f s, %s: %s", request.module_name, built.seconds, meta["way"], told
        )
        return built

    async def _publish(
        self, work: Work, flight: Flight, target: Path, meta: dict[str, Any]
    ) -> tuple[Result, Path]:
        try:
            result, path = await asyncio.to_thread(self._publisher.artifact, work, target, meta)
            if self._shared is not None:
                await asyncio.to_thread(
                    self._shared.offer, work.key, result, path, asked=flight.publish
                )
            task = asyncio.create_task(
                self._settle(result, self.paths(work.request, work.toolchain))
            )
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
            return result, path
        except ChangedDuringBuild as reason:
            log.info("%s is not kept: %s", work.request.module_name, reason)
            self._counters.unpublished += 1
            return await asyncio.to_thread(self._publisher.hand_over, work, target, meta)

    async def _settle(self, result: Result, paths: Paths | None) -> None:
        """Check and watch a new artifact and its dependencies: its first hit is then fast."""
        if paths is not None and await asyncio.to_thread(self._closures.holds, result.closure):
            await asyncio.to_thread(self._closures.steady, result.closure, paths)
        await asyncio.sleep(SETTLED_SECONDS)
        await asyncio.to_thread(self._store.look_again, result)

    def _stale(self, key: str) -> str:
        """Why none of the results that are known under a key holds; nothing when there is none."""
        known = self._store.results("artifact", key)
        return next((reason for one in known if (reason := self._closures.broken(one.closure))), "")

    def _note(self, chosen: Ways) -> None:
        if chosen.why_pybind is not None:
            self._counters.pybind_reasons[chosen.why_pybind] += 1
        if chosen.why_whole is not None:
            self._counters.whole_reasons[chosen.why_whole] += 1

    @staticmethod
    def _told(work: Work) -> str:
        """How the artifact was built, in a line."""
        pch = (
            "with a precompiled header"
            if any(unit.pch for unit in work.units)
            else "without precompiled headers"
        )
        said = f"{work.way.name} way, {pch}"
        if work.ways.why_pybind is not None:
            said += f"; functions bound by pybind11: {work.ways.why_pybind}"
        if work.way.name != "lean" and work.ways.why_whole is not None:
            said += f"; whole prelude: {work.ways.why_whole}"
        return said

    def _sources(self, work: Work) -> dict[str, str]:
        """What stock would have left in the build directory, as texts."""
        scratch = work.plan.scratch.rstrip("/")
        return {
            **work.plan.sources,
            "build.ninja": work.plan.ninja.replace(scratch, BUILD_DIRECTORY),
        }

    def _failure(self, work: Work, finished: Finished) -> Failed:
        """The compiler's text behind stock's prefix, in the user's lines."""
        text = diagnostics.to_user_lines(finished.output, work.lines.values())
        message = f"Error building extension '{work.request.module_name}': "
        message += failures.explained(finished, text) + text
        return Failed(0, "RuntimeError", message, diagnostics=diagnostics.parse(text))


def _foreign(plan: Plan, request: Request, toolchain: Toolchain) -> str | None:
    """What of a plan is not what was identified, and what was asked for; None when nothing is."""
    if plan.target not in (f"{request.module_name}.so", request.module_name):
        return f"torch makes {plan.target!r} of {request.module_name!r}"
    nvcc = toolchain.cuda.nvcc if toolchain.cuda is not None else None
    if plan.nvcc != nvcc and (nvcc is not None or any(unit.cuda for unit in plan.units)):
        return f"torch calls {plan.nvcc or 'no nvcc'}, and not {nvcc}"
    path = requested.build_environment(request)["PATH"]
    try:
        found = resolve(shell.decoded(plan.cxx), path)
    except MissingCompiler as error:
        return str(error)
    return (
        f"torch calls {plan.cxx}, and not {toolchain.argv[0]}" if found != toolchain.argv else None
    )


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
