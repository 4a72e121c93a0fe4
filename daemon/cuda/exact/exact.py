"""The exact level: what nvcc makes of a unit, by its own steps side by side, or by nvcc itself.

Where fork servers of the lean prelude are there, or are within seconds, they make the devices' half
(``device_half.py``): the level is called ``half`` then.
"""

from __future__ import annotations

import logging
import re
import shlex

from warmcc.config import Config
from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.build.work import Work
from warmcc.daemon.closure import assembler_reads
from warmcc.daemon.cuda.dryrun import UnknownPlan
from warmcc.daemon.cuda.exact.device_half import DeviceHalf
from warmcc.daemon.cuda.exact.side_by_side import SideBySide
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.unit_text.own_text import OwnText
from warmcc.daemon.cuda.warm.finder import Finder
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits
from warmcc.daemon.system.runner import Finished, Runner
from warmcc.daemon.toolchain import compiler_heap, ninja

log = logging.getLogger(__name__)


class Exact:
    """Compiles units at this level. One per daemon."""

    def __init__(
        self, config: Config, finder: Finder, runner: Runner, counters: Counters,
        steps: StepCache, permits: Permits,
    ) -> None:  # fmt: skip
        self._config = config
        self._finder = finder
        self._runner = runner
        self._counters = counters
        self._steps = steps
        self._permits = permits

    async def compile(
        self, compiling: Compiling, unit: Unit, own: OwnText
    ) -> tuple[Finished, DeviceHalf | None]:
        """A unit with its ``own`` text; and its devices' half where that was made apart."""
        work = compiling.work
        half = DeviceHalf(
            work, unit, own, self._finder, self._runner, self._steps, self._counters.cuda_reasons
        )
        if (finished := await self._side_by_side(compiling, unit, half)) is not None:
            used = half if half.stands else None
            self._counters.cuda["exact" if used is None else "half"] += 1
            return finished, used
        self._counters.cuda["exact"] += 1
        with work.timeline.span("nvcc", f"nvcc {unit.source}"):
            finished = await self._runner.run(
                ["/bin/sh", "-c", command(work, unit)], cwd=work.folder, environment=work.environment(),
                timeout=self._config.build_timeout, writes=[work.tree],
            )  # fmt: skip
        output = told(compiling, unit, finished.output, finished.code).output
        return Finished(finished.code, output, finished.timed_out), None

    async def _side_by_side(
        self, compiling: Compiling, unit: Unit, half: DeviceHalf
    ) -> Finished | None:
        """None where nvcc has to do it."""
        work = compiling.work
        if compiling.share is None or not self._config.cuda_side_by_side:
            return None
        jobs = self._permits.limit
        steps = SideBySide(
            work, unit, shlex.split(command(work, unit)), half, self._runner, self._permits,
            compiling.share, lambda words: compiler_heap.words(words, compiler_heap.size(self._config, jobs)),
            self._config.build_timeout, compiling.chosen.set,
        )  # fmt: skip
        try:
            finished = await steps.run()
        except UnknownPlan as reason:
            self._counters.cuda_reasons[f"side by side: {reason}"] += 1
        except (OSError, ValueError) as error:
            self._counters.cuda_reasons[f"side by side: {type(error).__name__}"] += 1
            log.info("%s is left to nvcc: %s", unit.source, error)
        else:
            output = told(compiling, unit, finished.output, finished.code).output
            return Finished(finished.code, output, finished.timed_out)
        return None


def told(compiling: Compiling, unit: Unit, output: str, code: int) -> Finished:
    """How a unit ended, in the words of stock's build."""
    failed = f"FAILED: {unit.object}\n" if code != 0 else ""
    text = f"{compiling.flight.mark()}{command(compiling.work, unit)}\n{failed}{output}"
    compiling.flight.output(text)
    return Finished(code, text)


def command(work: Work, unit: Unit) -> str:
    """nvcc's command for a unit, as stock has it, for a shell; the assembler says what it reads."""
    plan = work.plan
    place = str(work.tree / unit.object) if work.workdir is not None else unit.object
    source = (
        str(work.tree / unit.source)
        if unit.text is not None and work.workdir is not None
        else unit.source
    )
    quoted = [ninja.shell_words([word]) for word in (plan.nvcc, f"{place}.d", source, place)]
    home = requested.home(work.request)
    search = f"-I {ninja.shell_words([home])} " if home is not None else ""
    told = (
        assembler_reads.option(f"{place}{assembler_reads.SUFFIX}")
        if work.toolchain.assembler_tells
        else ""
    )
    told = f" -Xcompiler {ninja.shell_words([told.replace(',', chr(92) + ',')])}" if told else ""
    text = "{} -MD -MF {} {}{} -c {} -o {} {}".format(
        *quoted[:2], search, plan.cuda_cflags, *quoted[2:], plan.cuda_post_cflags
    )
    return re.sub(r"\$([ :$])", r"\1", text.rstrip() + told)
