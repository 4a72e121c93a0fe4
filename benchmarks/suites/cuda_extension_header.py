"""A CUDA toy as leaderboard users write it, with ``torch/extension.h`` and
``ATen/cuda/CUDAContext.h`` in the ``.cu``: from the call to the module, in a new process that has
torch imported.
"""

from __future__ import annotations

from benchmarks.harness import Call, cuda
from benchmarks.harness.results import Outcome

TITLE = "cuda: the same behind torch/extension.h"
REPEAT = 3
_INCLUDES = "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>\n"


def measure(repeat: int) -> Outcome:
    folders = cuda.library_headers()

    def make() -> Call:
        return cuda.toy(_INCLUDES, extra_include_paths=folders)

    return cuda.measure(repeat, make, limit=3.5, ratio=20.0, warm_up=1 if folders else 0)
