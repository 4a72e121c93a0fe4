"""g++ with room to work in: it looks for garbage less often.

g++ walks through all that it has in memory each time that has doubled, from 128 MB on. Behind
torch's headers that is a fifth of its time (docs/internals/decisions.md), and hardly anything is
found. The limit from which on it looks is a parameter of g++'s own, which changes nothing that it
writes, except where it writes down its own options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warmcc.config import Config
from warmcc.daemon.system import resources

_LEAST = 256 << 20  # bytes; less is hardly more than what g++ does by itself
# Debug information, a section, LTO's sections or a listing would name the parameter.
_WRITES_OPTIONS = re.compile(r"-g.*|-frecord-gcc-switches|-flto.*|-fverbose-asm|-v|-###|-Q")


def words(flags: Iterable[str], size: int) -> list[str]:
    """The options that give g++ ``size`` bytes; none where they would affect the output."""
    if not size or any(map(_WRITES_OPTIONS.fullmatch, flags)):
        return []
    return [f"--param=ggc-min-heapsize={size >> 10}"]


def size(config: Config, jobs: int) -> int:
    """Bytes for each compiler that runs at a time: as configured, if the machine has them."""
    spare = resources.memory_limit() // max(1, jobs) - config.job_memory
    found = min(config.compiler_heap, spare)
    return found if found >= _LEAST else 0
