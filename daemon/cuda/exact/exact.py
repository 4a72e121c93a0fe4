"""The exact level: what nvcc makes of a unit, by its own steps side by side, or by nvcc itself.

Where fork servers of the lean prelude are there, or are within seconds, they make the devices' half
(``device_half.py``): the level is called ``half`` then.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from contextlib import nullcontext

from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.cuda.dryrun import UnknownPlan
from warmcc.daemon.cuda.exact.command import command, told
from warmcc.daemon.cuda.exact.device_half import DeviceHalf
from warmcc.daemon.cuda.exact.side_by_side import Doubts, SideBySide
from warmcc.daemon.cuda.keeping import Compiled
from warmcc.daemon.cuda.tools import Tools
from warmcc.daemon.cuda.unit_text import own_text
from warmcc.daemon.cuda.unit_text.own_text import OwnText
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system import resources
from warmcc.daemon.system.runner import Finished
from warmcc.daemon.toolchain import nvcc_flags

log = logging.getLogger(__name__)


class Exact:
    """Compiles units at this level. One per daemon."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def compile(
        self, compiling: Compiling, unit: Unit, own: OwnText, doubts: Doubts
    ) -> tuple[Finished, Compiled | None]:
        """A unit with its ``own`` text, which may have mistakes where there are ``doubts``; and its
        devices' half where that was made apart. On few processors a doubtful unit has them to
        itself: what it waited for before tells it nothing now."""
        if self._tools.has_free_processors:
            doubts = ""
        with self._tools.runner.background.alone() if doubts else nullcontext():
            return await self._compile(compiling, unit, own, doubts)

    async def _compile(
        self, compiling: Compiling, unit: Unit, own: OwnText, doubts: Doubts
    ) -> tuple[Finished, Compiled | None]:
        work = compiling.work
        half = DeviceHalf(work, unit, own, self._tools)
        if (finished := await self._side_by_side(compiling, unit, half, doubts)) is not None:
            used = half.made.compiled if half.stands else None
            if half.refused is None:
                self._tools.counters.cuda["exact" if used is None else "half"] += 1
            return finished, used
        return await self._by_nvcc(compiling, unit), None

    async def compile_sooner(
        self, compiling: Compiling, unit: Unit, own: OwnText
    ) -> Finished | None:
        """A unit for one architecture that nvcc itself is done with before the C++ units beside it
        are, which have nothing warm and more headers: what had to be made ready for it would take
        processors that these need. None where that is not so."""
        work, tools, share = compiling.work, self._tools, compiling.share
        if share is None or tools.finder.is_prepared or tools.has_free_processors:
            return None
        weight = own.weight
        flags = f"{work.plan.cuda_cflags} {work.plan.cuda_post_cflags}"
        if weight == 1 or len(nvcc_flags.architectures(flags)) > 1:
            return None
        await compiling.plain_is_known.wait()
        at_once = min(resources.processors(), tools.permits.limit, share.most)
        if len(work.cuda_units) + len(compiling.plain) > at_once:
            return None
        texts = [await asyncio.to_thread(own_text.of_unit, work, one) for one in compiling.plain]
        if not any(one.weight > weight for one in texts):
            return None
        tools.counters.cuda_reasons["nvcc ends before the C++ units do"] += 1
        return await self._by_nvcc(compiling, unit)

    async def _by_nvcc(self, compiling: Compiling, unit: Unit) -> Finished:
        """A unit by nvcc itself, one step after the other."""
        work = compiling.work
        self._tools.counters.cuda["exact"] += 1
        with work.timeline.span("nvcc", f"nvcc {unit.source}"):
            finished = await self._tools.runner.run(
                ["/bin/sh", "-c", command(work, unit)], cwd=work.folder,
                environment=work.environment(),
                timeout=self._tools.config.build_timeout, writes=[work.tree],
            )  # fmt: skip
        output = told(compiling, unit, finished.output, finished.code).output
        return Finished(finished.code, output, finished.timed_out)

    async def _side_by_side(
        self, compiling: Compiling, unit: Unit, half: DeviceHalf, doubts: Doubts
    ) -> Finished | None:
        """None where nvcc has to do it."""
        work = compiling.work
        if compiling.share is None or not self._tools.config.cuda_side_by_side:
            return None
        words = shlex.split(command(work, unit))
        steps = SideBySide(compiling, unit, words, half, self._tools, compiling.share, doubts)
        try:
            finished = await steps.run()
        except UnknownPlan as reason:
            self._tools.counters.cuda_reasons[f"side by side: {reason}"] += 1
        except (OSError, ValueError) as error:
            self._tools.counters.cuda_reasons[f"side by side: {type(error).__name__}"] += 1
            log.info("%s is left to nvcc: %s", unit.source, error)
        else:
            output = told(compiling, unit, finished.output, finished.code).output
            return Finished(finished.code, output, finished.timed_out)
        return None
