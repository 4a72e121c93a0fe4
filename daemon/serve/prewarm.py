"""Warm up before the first request, for each configured set of flags.
It makes the precompiled headers that stock's calls need, and the generated units that all
extensions share, by building an extension of one function. Later, when the daemon is idle, it makes
the precompiled headers of flags that are common in public code, and of packages.

What is warm serves requests of one environment only (its Python, its compiler, its CC, LIBRARY_PATH
and so on). At the start the daemon's own is the best guess; a daemon that was started at boot
guesses wrong, and learns from the first requests that it has to compile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from warmcc.config import Config
from warmcc.daemon.build.builder import Builder
from warmcc.daemon.build.flight import Flight
from warmcc.daemon.cuda.warm.finder import Finder
from warmcc.daemon.pch import leading_includes, lean
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.plan import keys
from warmcc.daemon.plan.binding import neutral
from warmcc.daemon.plan.planner import Planner, Trial
from warmcc.daemon.plan.wanted import wanted
from warmcc.daemon.serve import packages
from warmcc.daemon.serve.targets import NAME, State, Target, Targets, own
from warmcc.daemon.system.background import Background
from warmcc.protocol import Built

log = logging.getLogger(__name__)

# Seconds without a new target before what may be asked for some day has its turn.
_IDLE_SECONDS = 10.0
_MANY = 8  # steps of builds at a time, with which C++ and CUDA are made warm side by side
# With fewer, CUDA begins when the C++ that most calls need is warm, beside the rest of that.
_WITHOUT_TORCH = ("", "#include <cuda_runtime.h>\n")  # what units of no torch begin with


class Prewarmer:
    """Warms up in the background. ``left`` counts the sets of flags that are not warm yet,
    ``left_for_idle`` those whose turn comes when the daemon is idle."""

    def __init__(
        self, config: Config, planner: Planner, builder: Builder, profiles: Profiles,
        background: Background, cuda: Finder,
    ) -> None:  # fmt: skip
        self._config = config
        self._planner = planner
        self._builder = builder
        self._profiles = profiles
        self._background = background
        self._cuda = cuda
        self._waiting: asyncio.Queue[Target] = asyncio.Queue()
        self._later: list[tuple[Target, str]] = []
        self._at_once = background.steps_at_a_time >= _MANY
        self.targets = Targets(self._add)
        self.left = self.left_for_idle = 0
        for target in own():
            self._add(target)

    def _add(self, target: Target) -> None:
        if sets := self._flag_sets(target):
            self.left += len(sets)
            self.targets.all.append(target)
            self._waiting.put_nowait(target)

    def _flag_sets(self, target: Target) -> list[str]:
        if target.language == "C++":
            return self._config.prewarm
        wants = self._config.prewarm_cuda and self._config.cuda_warm
        return [""] if wants and target.has_nvcc() else []

    async def run(self) -> None:
        """Warm up for one target after another, or for all at once where there are processors for
        that; ends when it is cancelled."""
        warming: set[asyncio.Future[Any]] = set()
        try:
            while True:
                limit = _IDLE_SECONDS if self._later or warming else None
                try:
                    target = await asyncio.wait_for(self._waiting.get(), limit)
                except asyncio.TimeoutError:
                    warming = {task for task in warming if not task.done()}
                    if self._later and not warming:
                        some = len(self._later) if self._at_once else 1
                        now, self._later = self._later[:some], self._later[some:]
                        warming.add(asyncio.gather(*(self._in_turn(*one) for one in now)))
                        if not self._at_once:
                            await asyncio.wait(warming)
                    continue
                warming.add(task := asyncio.create_task(self._warm_all(target)))
                if not self._at_once:
                    await self._most_of(target, task)
        finally:
            for work in warming:
                work.cancel()
            await asyncio.gather(*warming, return_exceptions=True)

    @staticmethod
    async def _most_of(target: Target, task: asyncio.Task[None]) -> None:
        """Wait until a target is warm, or until the next one need not wait for the rest of it."""
        made = asyncio.create_task(target.mostly_warm.wait())
        try:
            await asyncio.wait([task, made], return_when=asyncio.FIRST_COMPLETED)
        finally:
            made.cancel()

    async def _warm_all(self, target: Target) -> None:
        target.state = State.WARMING
        for flags in self._flag_sets(target):
            try:
                await self._warm(target, flags)
            except Exception as error:
                target.state, target.why_failed = State.FAILED, str(error)
                log.warning("prewarming %s with %r failed: %s", target.language, flags, error)
            self.left -= 1
        if target.state is State.WARMING:
            target.state = State.WARM
            self._later += [(target, flags) for flags in self._config.prewarm_idle]
            self.left_for_idle += len(self._config.prewarm_idle)
            # The first flags are the most frequent ones.
            order = {flags: number for number, flags in enumerate(self._config.prewarm_idle)}
            self._later.sort(key=lambda one: order.get(one[1], -1))

    async def _in_turn(self, target: Target, flags: str) -> None:
        try:
            await self._warm_ahead(target, flags)
        finally:
            self.left_for_idle -= 1

    async def _warm_ahead(self, target: Target, flags: str) -> None:
        """Make the PCH, or the host's CUDA prelude, that a first call with these flags needs, or a
        package's first source."""
        await self._background.quiet()
        try:
            first, *others = flags.split() or [""]
            if first == packages.SETUP:
                await self._warm_package(await self._planner.trial(target.request()), others)
                return
            trial = await self._planner.trial(target.request(flags))
            if (plan := trial.plan) is None:
                return
            if target.language == "CUDA":
                text = plan.sources.get("cuda.cu", "")
                await self._cuda.make_host(trial.request, trial.toolchain, plan, text)
            elif self._config.pch and (one := wanted(trial.request, trial.toolchain, plan)):
                self._profiles.prewarm(one, leading_includes.EXTENSION)
                self._prewarm_plain(trial)
                await self._build_when_ready(trial)
        except Exception as error:
            log.warning("prewarming %s with %r failed: %s", target.language, flags, error)

    async def _warm_package(self, call: Trial, flags: list[str]) -> None:
        trial = packages.trial(call, flags)
        if trial is None or trial.plan is None:
            return
        if call.request.cuda_sources:
            request, text = trial.request, packages.SOURCE
            await self._cuda.make_host(request, trial.toolchain, trial.plan, text)
        elif self._config.pch and (one := wanted(trial.request, trial.toolchain, trial.plan)):
            self._profiles.prewarm(one, leading_includes.EXTENSION)
            await self._profiles.built()

    async def _warm(self, target: Target, flags: str) -> None:
        request = target.request(flags)

        async def prepare() -> None:
            await self._profiles.prepare(await self._planner.identify(request))

        await asyncio.gather(self._planner.import_torch(request), prepare())  # each takes a second
        trial = await self._planner.trial(request)
        self.targets.identified(target, trial.toolchain)
        if trial.plan is None:
            log.info("%s is not warmed up: torch cannot build for it here", target.language)
        elif target.language == "CUDA":
            await self._warm_cuda(trial)
        else:
            await self._warm_cpp(target, trial)

    async def _warm_cuda(self, trial: Trial) -> None:
        """Have the profile made that a call without flags needs, and an extension built with it."""
        assert trial.plan is not None
        await self._background.quiet()
        await self._cuda.prepare(trial.toolchain)
        for text in (trial.plan.sources.get("cuda.cu", ""), *_WITHOUT_TORCH):
            await self._cuda.find(trial.request, trial.toolchain, trial.plan, text, ahead=True)
        await self._cuda.profiles.built()
        await self._build(trial)

    async def _warm_cpp(self, target: Target, trial: Trial) -> None:
        """Have the PCHs made that calls with these flags need, and the shared units; first what
        most calls need."""
        assert trial.plan is not None
        one = wanted(trial.request, trial.toolchain, trial.plan) if self._config.pch else None
        if one is None:
            return
        casters = asyncio.create_task(self._make_casters(trial))
        try:
            if self._config.lean and not one.optimises:
                self._profiles.prewarm(one, lean.TORCH)
                if not self._at_once:
                    await asyncio.gather(self._profiles.built(), casters)
                    if self._background.has_room():
                        target.mostly_warm.set()
                self._profiles.prewarm(one, lean.PYTHON)
                if not self._at_once:
                    await self._profiles.built()  # CUDA has the other processors meanwhile
            self._profiles.prewarm(one, leading_includes.EXTENSION)
            self._prewarm_plain(trial)
            await casters
        finally:
            casters.cancel()
            await asyncio.gather(casters, return_exceptions=True)
        await self._build_when_ready(trial)

    async def _make_casters(self, trial: Trial) -> None:
        """Have the unit compiled that all extensions share, which needs no PCH."""
        if not self._config.binding:
            return
        await self._background.quiet()
        flight = Flight(keys.request_key(trial.request, trial.toolchain), NAME)
        try:
            await self._builder.make_casters(trial, flight)
        except OSError as error:
            log.warning("the casters cannot be made ahead: %s", error)

    def _prewarm_plain(self, trial: Trial) -> None:
        """Have the lean preludes made behind which the units that warmcc writes are compiled."""
        assert trial.plan is not None
        plain = neutral.flags(trial.plan.cflags)
        one = wanted(trial.request, trial.toolchain, trial.plan, plain)
        if one is not None and self._config.lean and self._config.binding:
            for headers in lean.TITLES:
                self._profiles.prewarm(one, headers)

    async def _build_when_ready(self, trial: Trial) -> None:
        """Have the shared units built behind the PCHs that are being made."""
        await self._profiles.built()
        if self._config.binding:
            await self._build(trial)

    async def _build(self, trial: Trial) -> None:
        """Build it, for the units that all extensions share."""
        await self._background.quiet()
        flight = Flight(keys.request_key(trial.request, trial.toolchain), NAME)
        answer = await self._builder.build(trial.request, trial.toolchain, flight)
        if not isinstance(answer, Built):
            log.warning("prewarming with %s failed: %s", trial.request.extra_cflags, answer)
