"""What is done with a unit once it is compiled: its steps are kept, and it is offered as a
sample."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

from warmcc.daemon.build.work import Work
from warmcc.daemon.cuda import sample
from warmcc.daemon.cuda.tools import Tools
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.toolchain import ninja
from warmcc.daemon.toolchain.flags import split
from warmcc.daemon.verify.sampling import Inputs, Sampler


@dataclass(frozen=True)
class Compiled:
    """A unit that a level's fork servers compiled, or a half of it, in a folder. ``new`` are steps
    that may be kept: what they wrote, by name, by key; ``output`` is what was printed."""

    profile: CudaProfile
    level: Level
    folder: Path
    new: dict[str, dict[str, bytes]]
    output: str


async def keep(compiled: Compiled, work: Work, unit: Unit, tools: Tools, sampler: Sampler) -> None:
    """Keep the steps, and offer the unit as a sample, while the link goes on."""
    level, profile = compiled.level, compiled.profile
    with contextlib.suppress(OSError):
        await asyncio.to_thread(tools.steps.keep, compiled.new, compiled.folder, level.maker)
    if unit.text is None or not sampler.wants(sample.CudaSample.kind):
        return
    plan, environment = work.plan, profile.environment
    words = [plan.nvcc, *split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}")]
    made = await sample.read(compiled.folder, work.tree / unit.object, environment, tools.runner)
    depfile = work.tree / f"{unit.object}.d"
    listed = await asyncio.to_thread(ninja.dependencies, depfile, work.folder)
    read = [path for path in listed if not path.startswith(f"{work.tree}/")]  # it goes away
    inputs = await asyncio.to_thread(Inputs.of, read, work.marker)
    sampler.offer(
        sample.CudaSample(
            work.request.module_name, level.maker, inputs, unit.text, words, environment, made,
            tools.runner,
        )
    )  # fmt: skip
