"""nvcc's command for a unit, and how its end is told."""

from __future__ import annotations

import re
import shlex

from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.build.work import Work
from warmcc.daemon.closure import assembler_reads
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.runner import Finished
from warmcc.daemon.toolchain import ninja, nvcc_flags

_OF_THREADS = 255  # with which nvcc ends then, whatever its step ended with


def told(compiling: Compiling, unit: Unit, output: str, code: int) -> Finished:
    """How a unit ended, in the words of stock's build."""
    words = command(compiling.work, unit)
    if code != 0 and nvcc_flags.has_threads(shlex.split(words)):
        code = _OF_THREADS
    failed = f"FAILED: [code={code}] {unit.object}\n" if code != 0 else ""
    text = f"{compiling.flight.mark()}{words}\n{failed}{output}"
    compiling.flight.output(text)
    return Finished(code, text)


def source(work: Work, unit: Unit) -> str:
    """The name by which nvcc is told of a unit."""
    if unit.text is not None and work.workdir is not None:
        return str(work.tree / unit.source)
    return unit.source


def command(work: Work, unit: Unit) -> str:
    """nvcc's command for a unit, as stock has it, for a shell; the assembler says what it reads."""
    plan = work.plan
    place = str(work.tree / unit.object) if work.workdir is not None else unit.object
    names = (plan.nvcc, f"{place}.d", source(work, unit), place)
    quoted = [ninja.shell_words([word]) for word in names]
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
