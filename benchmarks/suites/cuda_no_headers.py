"""A CUDA unit without torch (``no_implicit_headers``, ``<cuda_runtime.h>``, C functions to be
called by address), never seen before: from the call to the library, in a new process that has torch
imported.
"""

from __future__ import annotations

from benchmarks.harness import Call, cuda, new_number
from benchmarks.harness.results import Outcome

TITLE = "cuda: a unit without torch"
REPEAT = 3
_SOURCE = """\
#include <cuda_runtime.h>
extern "C" int number() {{ return {number}; }}
extern "C" void launch(const float* x, float* y, int n, cudaStream_t stream) {{
  scale<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}}
"""


def make() -> Call:
    number = new_number()
    includes, rest = _SOURCE.format(number=number).split("\n", 1)
    arguments = {
        "cpp_sources": "", "cuda_sources": f"{includes}\n{cuda.kernel(number)}{rest}",
        "no_implicit_headers": True, "is_python_module": False,
    }  # fmt: skip
    return Call(
        "load_inline",
        f"free_{number}",
        arguments,
        f"__import__('ctypes').CDLL(module).number() == {number}",
    )


def measure(repeat: int) -> Outcome:
    return cuda.measure(repeat, make, limit=0.6, ratio=None)
