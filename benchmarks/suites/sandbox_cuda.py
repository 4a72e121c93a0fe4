"""A small CUDA unit that nobody has built before, by a daemon with ``sandbox = true``, whose forks
are confined one by one; in the same turns by one without and by stock.
"""

from __future__ import annotations

from benchmarks.harness import sandboxed
from benchmarks.harness.results import Outcome
from benchmarks.suites import cuda_no_headers

TITLE = "sandbox: a small CUDA unit"
REPEAT = 15


def measure(repeat: int) -> Outcome:
    return sandboxed.measure(repeat, cuda_no_headers.make, level="warm")
