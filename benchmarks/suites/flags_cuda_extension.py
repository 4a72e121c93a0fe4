"""The twelve lists of flags of ``flags_cuda``, with ``torch/extension.h`` in the ``.cu``, as nearly
all public calls have it.
"""

from __future__ import annotations

from benchmarks.harness.results import Outcome
from benchmarks.suites import flags_cuda

TITLE = "cuda: twelve lists of flags behind torch/extension.h"
REPEAT = 1


def measure(repeat: int) -> Outcome:
    return flags_cuda.behind("#include <torch/extension.h>\n", repeat)
