"""A CUDA unit that the lean prelude cannot serve, as it asks for a macro of torch's headers: the
warm level does it, with torch's own headers in fork servers.
"""

from __future__ import annotations

from benchmarks.harness import Call, cuda
from benchmarks.harness.results import Outcome

TITLE = "cuda: a kernel that needs torch's own headers"
REPEAT = 3
_CONDITION = "#ifndef TORCH_API\n#error torch/types.h defines it\n#endif\n"


def make() -> Call:
    return cuda.toy(_CONDITION)


def measure(repeat: int) -> Outcome:
    return cuda.measure(repeat, make, limit=None, ratio=3.0, warm_up=1, alone=True)
