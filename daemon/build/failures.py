"""What a failed step means, and what is done about it.

Three can be to blame. The *user's code*: then the compilers' words are the answer, and nothing is
tried again. An *accelerator* of warmcc's (a precompiled header, ccache, a fast linker, a binding
that warmcc wrote, a way that is not stock's): then the same is done without it, within the same
build, and the user sees only what the plainest attempt said. The *machine* (memory, disk,
somebody's SIGKILL): then the steps run once more, or stock torch is left to try.

Which of them it was is read from the exit status and from what the compilers printed, and a user's
own message can look like any of these. So a row that blames an accelerator or the machine decides
nothing: it costs one more compile, and the last, plain attempt has the last word.

| what is seen | to blame | remedy |
|---|---|---|
| ``ccache: error`` | ccache (a home that cannot be written) | compile without ccache |
| a compiler or ninja ended by SIGKILL | the machine | run the same steps again, once |
| the link failed with a fast linker | the linker | link with the compiler's own |
| an internal error, no memory, a bad PCH | precompiled headers | stock's way, without them |
| a generated unit did not compile | the binding | the next way |
| anything behind the lean prelude | the prelude | the next way |
| a mistake in no line of the user's | the binding | the next way |
| killed again; a full disk | the machine | stock torch |
| anything else | the user's code | the answer |
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from warmcc.daemon.build import diagnostics
from warmcc.daemon.build import work as working
from warmcc.daemon.build.work import Work
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.runner import Finished
from warmcc.protocol import Failed

_NOT_THE_USERS = re.compile(
    r"internal compiler error|warmcc_pch_not_used|error: .*(?:\bPCH\b|\.gch\b"
    r"|prelude\.h: No such file)|\.gch: .*error"
    r"|Killed signal|[Oo]ut of memory|[Cc]annot allocate memory|No space left on device"
    r"|ccache: error"
)
# The last two where it was the driver: older versions of ninja do not say the code.
_KILLED = re.compile(
    r"Killed signal terminated program|terminated with signal 9|^FAILED: \[code=137\]|^Killed$",
    re.M,
)
_LINK_FAILED = re.compile(
    r"^FAILED: (?:\[code=\d+\] )?\S+\.so\b|^(?:\S*/)?(?:mold|ld\.lld|collect2): ", re.M
)
_FAILED = re.compile(r"^FAILED: (?:\[code=\d+\] )?(\S+)", re.M)
_MEMORY = re.compile(r"virtual memory exhausted|out of memory|[Cc]annot allocate memory")
_DISK = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|File size limit exceeded", re.I
)


class Remedy(Enum):
    """What is done within a way."""

    WITHOUT_CCACHE = "ccache failed"
    AGAIN = "a step was killed, and run again"
    OWN_LINKER = "linked with the compiler's own linker"
    WITHOUT_PCH = "compiled without precompiled headers"


@dataclass(frozen=True)
class Row:
    """A remedy, and when it is the one."""

    remedy: Remedy
    is_it: Callable[[Finished, Work], bool]


def may_be_an_accelerators(output: str) -> bool:
    """Whether something else than the user's code may have been to blame."""
    return _NOT_THE_USERS.search(output) is not None


def _ccache_failed(finished: Finished, work: Work) -> bool:
    return finished.code != 0 and not work.without_ccache and "ccache: error" in finished.output


def was_killed(finished: Finished) -> bool:
    """Whether a signal ended a command, or a compiler that it ran."""
    return finished.code < 0 or (finished.code != 0 and _KILLED.search(finished.output) is not None)


def _killed(finished: Finished, _: Work) -> bool:
    return not finished.timed_out and was_killed(finished)


def _linker_failed(finished: Finished, work: Work) -> bool:
    return (
        finished.code != 0
        and bool(work.taken.linker.option)
        and _LINK_FAILED.search(finished.output) is not None
    )


def _pch_failed(finished: Finished, work: Work) -> bool:
    stocks = work.way.name == "stock"  # another way has a next one
    return (
        stocks
        and bool(work.accelerated)
        and finished.code != 0
        and may_be_an_accelerators(finished.output)
    )


# Asked in this order after each run of a way's steps; a remedy is tried once.
WITHIN_A_WAY = (
    Row(Remedy.WITHOUT_CCACHE, _ccache_failed),
    Row(Remedy.AGAIN, _killed),
    Row(Remedy.OWN_LINKER, _linker_failed),
    Row(Remedy.WITHOUT_PCH, _pch_failed),
)


def generated_that_failed(finished: Finished, work: Work) -> list[Unit]:
    """The units of warmcc's own that did not compile."""
    failed = {os.path.basename(name) for name in _FAILED.findall(finished.output)}
    return [unit for unit in work.units if unit.generated and unit.object in failed]


def why_next_way(finished: Finished, work: Work) -> str | None:
    """Why the next way may succeed where this one failed; None where it would fail as well."""
    if finished.code == 0:
        return None
    if generated_that_failed(finished, work):
        return f"{work.way.name}: the binding did not compile"
    if work.way.name == "lean":
        return "lean: did not compile"
    if may_be_an_accelerators(finished.output) or not working.users_error(work, finished.output):
        return "direct: the binding did not compile"
    return None


def why_stock(finished: Finished, folder: str) -> str | None:
    """Why stock torch is left to try what was built in ``folder``: it may be luckier.
    None where it would not be."""
    if finished.timed_out or finished.code == 0:
        return None
    if finished.code < 0:
        return f"the build was killed twice, by signal {-finished.code}"
    full = _DISK.search(finished.output)
    return f"{full.group()} while building in {folder}" if full is not None else None


def answer(finished: Finished, work: Work) -> Failed:
    """The compilers' text behind stock's prefix, in the user's line numbers."""
    text = diagnostics.to_user_lines(finished.output, work.lines.values())
    message = f"Error building extension '{work.request.module_name}': "
    message += explained(finished, text) + text
    return Failed(0, "RuntimeError", message, diagnostics=diagnostics.parse(text))


def explained(finished: Finished, text: str) -> str:
    """What precedes the compilers' words where they do not name the cause: a limit, a setting."""
    if finished.timed_out:
        return "the build exceeded its time limit (build_timeout in the configuration)\n"
    if _MEMORY.search(text):
        return "a compiler ran out of memory (step_memory in the configuration limits it)\n"
    return ""
