"""What a submission defines, how it is built and how it is called. Change it with ``task.py``.

The process of a submission imports this file, so no test and no reference is here. A submission is
C++ or CUDA and defines::

    extern "C" void solve(const float* x, float* y, int64_t rows, int64_t columns);

with both matrices on the CPU, or for CUDA on the GPU. It need not include torch's headers, and may.
For a task with tensors, build with ``functions=["solve"]`` and without ``is_python_module`` and
``no_implicit_headers``; ``function`` is ``loaded.solve`` then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from .submission import Submission

ARCHITECTURES = ["9.0"]  # of the machine that runs submissions; for CUDA sources only


def arguments(source: Submission) -> dict[str, Any]:
    """Those of ``warmcc.build_inline``, and of ``warmcc.load_inline`` on the other machine."""
    given = {
        "name": source.extension, "is_python_module": False, "no_implicit_headers": True,
        "extra_ldflags": source.ldflags,
    }  # fmt: skip
    if source.language == "cuda":
        return given | {
            "cpp_sources": "", "cuda_sources": source.source, "extra_cuda_cflags": source.flags,
        }  # fmt: skip
    return given | {"cpp_sources": source.source, "extra_cflags": source.flags}


def function(loaded: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """What is called with the inputs of a test. Raises OSError, AttributeError."""
    solve = ctypes.CDLL(loaded).solve
    solve.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    solve.restype = None

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        solve(x.data_ptr(), y.data_ptr(), *x.shape)
        return y

    return call
