"""Attempts to compile a unit at a level of warm state, and what is learnt of them."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass

from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.work import Work
from warmcc.daemon.cuda import pipeline
from warmcc.daemon.cuda.exact.side_by_side import Doubts
from warmcc.daemon.cuda.front_ends import CICC, Fell
from warmcc.daemon.cuda.keeping import Compiled
from warmcc.daemon.cuda.tools import Tools
from warmcc.daemon.cuda.warm.fork_servers import ServerDied
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import Apart, CudaProfile
from warmcc.daemon.plan.ways import Unit

log = logging.getLogger(__name__)


@dataclass
class Attempts:
    """Those of one unit with its own ``text``, at the levels of a profile. ``fell`` are the levels
    that could not compile it, ``of_devices`` those whose front ends for the devices could not;
    ``complaints`` is the lean one's output; ``apart``: the context in which it waits."""

    tools: Tools
    learnt: Learnt
    work: Work
    unit: Unit
    text: str
    profile: CudaProfile
    apart: Apart

    def __post_init__(self) -> None:
        self.fell: list[Level] = []
        self.of_devices: list[Level] = []
        self.complaints = ""

    @property
    def doubts(self) -> Doubts:
        """In which half of the unit a level found what may be a mistake."""
        if not self.fell:
            return ""
        return "device" if self.of_devices else "host"

    def avoids(self, level: Level) -> bool:
        """Whether the level fell each time, for this unit or for this set of flags."""
        return any(self.learnt.avoids(key, times) for key, times in self._tries(level))

    async def levels(self) -> AsyncIterator[Level]:
        """Those to try, the fastest first. What the lean prelude could not compile waits for the
        front ends behind torch/extension.h, where these may tell: for the devices they are the lean
        prelude's own. With processors to spare nvcc itself tells as soon."""
        finder = self.tools.finder
        found, reason = await finder.levels(self.profile, self.text)
        if reason is not None:
            self.tools.counters.cuda_reasons[reason] += 1
        for level in found:
            if level.lender is None or level.lender not in self.of_devices:
                yield level
        if self.fell and not self.of_devices:
            asked = time.monotonic()
            waits = None if self.tools.has_free_processors else self.apart
            behind = await finder.behind_extension(self.profile, self.text, waits)
            if behind is not None:
                name = f"fork servers for {self.unit.source}"
                self.work.timeline.add("fork servers", name, asked, time.monotonic())
                yield behind

    async def at(self, level: Level) -> Compiled | Fell:
        """The unit at one level, or why the next one has to do it."""
        work, unit, tools = self.work, self.unit, self.tools
        reasons = tools.counters.cuda_reasons
        try:
            with self.profile.in_use():
                made = await pipeline.make(
                    work,
                    unit,
                    self.text,
                    self.profile,
                    level,
                    tools.runner,
                    tools.steps,
                    self.apart,
                )
        except Fell as fell:
            reasons[f"{level.name}: {fell}"] += 1
            said = fell.output[:3000]
            log.info("%s fell from the %s level at %s:\n%s", unit.source, level.name, fell, said)
            self.of_devices += [level] if fell.step == CICC else []
            return self._fallen(level, fell)
        except ServerDied as died:
            reasons[f"{level.name}: a fork server died"] += 1
            tools.finder.profiles.drop(self.profile, "a fork server died")
            log.info("%s", died)
        except OSError as error:
            reasons[f"{level.name}: {error.strerror or error}"] += 1
            log.info("%s fell from the %s level: %s", unit.source, level.name, error)
        else:
            if made.refused:
                reasons[f"{level.name}: g++ refused the host's precompiled header"] += 1
            for key, _ in self._tries(level):
                self.learnt.worked(key)
            folder = pipeline.place(work, unit, level)
            return Compiled(self.profile, level, folder, made.new, made.output)
        return self._fallen(level, Fell(level.name))

    def _fallen(self, level: Level, fell: Fell) -> Fell:
        self.fell.append(level)
        self.complaints = fell.output if level.name == "lean" else self.complaints
        return fell

    def nvcc_succeeded(self) -> None:
        """The unit compiles: what its levels complained of was their fault."""
        for level in self.fell:
            for key, _ in self._tries(level):
                self.learnt.failed(key)
        if self.complaints:
            self.tools.finder.missing.learn(self.complaints, [self.text])

    def _tries(self, level: Level) -> list[tuple[Hashable, int]]:
        """What is known of a level, and how often it falls until it is left out: for one unit, and
        for one set of flags."""
        key = (level.maker, self.profile.key)
        return [((*key, self.work.request.name, self.unit.object), 2), (key, 8)]
