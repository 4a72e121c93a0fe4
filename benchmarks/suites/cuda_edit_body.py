"""An edit of a kernel's body in an extension that was built before, same names and signatures."""

from __future__ import annotations

from benchmarks.harness import cuda
from benchmarks.harness.results import Outcome

TITLE = "cuda: the body of a kernel"
REPEAT = 3


def measure(repeat: int) -> Outcome:
    return cuda.measure(repeat, cuda.edited_toy, limit=2.0, ratio=None, edits=True)
