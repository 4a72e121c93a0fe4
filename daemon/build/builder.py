"""From a request to its artifact: find it, or plan, run the steps, and publish the result.

The way of a miss: stock's own plan from a zygote → a staging tree → objects that the store has
already → ninja compiles the rest and links → closures are recorded → objects and the artifact are
published. Warm state (the PCH, ccache) only makes steps faster; a step that fails with it for a
reason that is not the user's code runs again without.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from warmcc.daemon.build import failures
from warmcc.daemon.build.elsewhere.objects import Elsewhere
from warmcc.daemon.build.executor import Executor
from warmcc.daemon.build.flight import Answer, Flight, Phase
from warmcc.daemon.build.publisher import Publisher
from warmcc.daemon.build.work import Work, prepare
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closures
from warmcc.daemon.plan.planner import Planner, Trial
from warmcc.daemon.plan.zygotes import ZygoteFailed
from warmcc.daemon.store import Result, Store, staging_tree
from warmcc.daemon.store.hits import Hits, built
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.toolchain import Toolchain
from warmcc.protocol import Built, Declined, Failed
from warmcc.request import Request

log = logging.getLogger(__name__)


class Builder:
    """Turns requests into answers. One per daemon.
    ``on_built`` hears of each request that had to be compiled."""

    def __init__(
        self, store: Store, closures: Closures, hits: Hits, planner: Planner, executor: Executor,
        publisher: Publisher, counters: Counters, elsewhere: Elsewhere,
    ) -> None:  # fmt: skip
        self._store = store
        self._closures = closures
        self._hits = hits
        self._planner = planner
        self._executor = executor
        self._publisher = publisher
        self._elsewhere = elsewhere
        self._counters = counters
        self.on_built: Callable[[Request, Toolchain], None] | None = None

    async def build(self, request: Request, toolchain: Toolchain, flight: Flight) -> Answer:
        """Build what a flight is for. Never raises for what a request can cause."""
        started = time.monotonic()
        # Between the look-up that missed and this flight another one may have landed.
        if (hit := await self._hits.find(flight.key, publish=flight.publish)) is not None:
            return hit
        flight.stale = await asyncio.to_thread(self._hits.why_stale, flight.key)
        flight.phase = Phase.PLANNING
        tree = await staging_tree(self._store)
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

    async def make_casters(self, trial: Trial, flight: Flight) -> None:
        """Compile what all extensions share, ahead of the first one. Raises OSError."""
        plan, chosen = await self._planner.casters(trial)
        tree = await staging_tree(self._store)
        try:
            work = await asyncio.to_thread(
                prepare, trial.request, trial.toolchain, flight.key, plan, chosen, tree,
                self._store, self._closures, flight.timeline,
                follows=self._planner.may_read_headers,
            )  # fmt: skip
            finished = await self._executor.run(work, flight)
            if finished.code != 0:
                log.warning("the casters cannot be compiled: %s", finished.output[-2000:])
            await asyncio.to_thread(self._publisher.units, work)
        finally:
            await asyncio.shield(asyncio.to_thread(self._store.discard, tree))

    async def _build_in(
        self, request: Request, toolchain: Toolchain, flight: Flight, tree: Path, started: float
    ) -> Answer:
        flight.begin(started)
        with flight.timeline.span("plan"):
            plan = await self._planner.plan(request, toolchain)
            if isinstance(plan, Failed | Declined):
                return plan
            chosen = await self._planner.choose(request, plan, toolchain)
        work = await asyncio.to_thread(
            prepare, request, toolchain, flight.key, plan, chosen, tree, self._store,
            self._closures, flight.timeline, follows=self._planner.may_read_headers,
        )  # fmt: skip
        if said := await self._elsewhere.fill(work):
            flight.output(said)
        finished = await self._executor.run(work, flight)
        self._counters.units_reused += sum(map(work.has, work.units))
        if (reason := failures.why_stock(finished, str(self._store.root))) is not None:
            return Declined(0, reason, expected=False)
        if finished.timed_out or finished.code != 0:
            await asyncio.to_thread(self._publisher.units, work)
            return failures.answer(finished, work)
        self._counters.links += plan.links
        with flight.timeline.span("publish"):
            output = said + finished.output if plan.links else said or finished.output
            result, path = await self._publish(work, flight, output)
        answer = built(result, path, "miss", started)
        await asyncio.to_thread(self._hits.tell_what_was_read, answer, result)
        answer.steps = flight.timeline.steps()
        flight.way = answer.way
        steps = ", ".join(f"{name} {seconds:.2f}" for name, seconds in answer.steps.items())
        log.info(
            "built %s in %.2f s, %s: %s", request.module_name, answer.seconds, answer.way, steps
        )
        return answer

    async def _publish(self, work: Work, flight: Flight, output: str) -> tuple[Result, Path]:
        try:
            result, path = await asyncio.to_thread(self._publisher.artifact, work, output)
        except ChangedDuringBuild as reason:
            log.info("%s is not kept: %s", work.request.module_name, reason)
            self._counters.unpublished += 1
            return await asyncio.to_thread(self._publisher.hand_over, work, output)
        await asyncio.to_thread(self._elsewhere.keep, work, output)
        paths = self._planner.paths(work.request, work.toolchain)
        await self._hits.add(work.key, result, path, publish=flight.publish, paths=paths)
        return result, path
