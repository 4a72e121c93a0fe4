"""A CUDA toy that nobody has built before, with stock's implicit headers and ``functions=``: from
the call to the module, in a new process that has torch imported.
"""

from __future__ import annotations

from benchmarks.harness import cuda
from benchmarks.harness.results import Outcome

TITLE = "cuda: a kernel never seen before"
REPEAT = 3


def measure(repeat: int) -> Outcome:
    return cuda.measure(repeat, cuda.toy, limit=2.5, ratio=12.0)
