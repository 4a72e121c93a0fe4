"""Save to new result, C++: from the close of an edited file to the end of the first call on the new
code, in a process that watches the file; stock's author starts a new process that calls ``load``.
"""

from __future__ import annotations

from benchmarks.harness import World, live
from benchmarks.harness.results import Outcome

TITLE = "live: save to new result, C++"
REPEAT = 3
SOURCE = """#include <torch/extension.h>
at::Tensor scale(at::Tensor x) { return x * NUMBER; }
int number() { return NUMBER; }
"""


def measure(repeat: int) -> Outcome:
    with World() as world:
        world.wait_for_pch()
        return live.measure(world, repeat, SOURCE, ".cpp", limit=1.2)
