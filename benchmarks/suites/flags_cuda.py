"""Twelve lists of flags for CUDA, as public calls have them, each new to a daemon that is warm for
the default flags; then each a second time with another kernel, when the daemon is idle.
"""

from __future__ import annotations

from benchmarks.harness import Call, cuda, flag_lists
from benchmarks.harness.cuda import CudaWorld
from benchmarks.harness.flag_lists import Flags
from benchmarks.harness.results import Outcome

TITLE = "cuda: twelve lists of flags, first sight"
REPEAT = 1

_O3 = ["-O3"]
_LISTS: list[Flags] = [
    (_O3, _O3),
    ([], ["--use_fast_math"]),
    (_O3, ["-O3", "--use_fast_math"]),
    (["-O2"], ["-O2"]),
    (["-O3", "-std=c++17"], ["-O3", "-std=c++17"]),
    ([], ["-lineinfo"]),
    (_O3, ["-O3", "--expt-relaxed-constexpr", "--expt-extended-lambda"]),
    ([], ["-O3", "--maxrregcount=64"]),
    (["-O3", "-fopenmp"], ["-O3", "-Xptxas", "-O3"]),
    (["-O3", "-DN_WIDE=64"], ["-O3", "-DN_WIDE=64"]),
    (["-O2"], ["-O3", "-lineinfo", "-Xptxas", "-v"]),
    (_O3, ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]),
]


def measure(repeat: int) -> Outcome:
    return behind("", repeat)


def behind(includes: str, repeat: int) -> Outcome:
    """With a kernel that has these ``includes`` besides stock's own."""

    def call(flags: Flags) -> Call:
        host, device = flags
        return cuda.toy(includes, extra_cflags=host, extra_cuda_cflags=device)

    with CudaWorld() as world:
        world.wait_for_pch()
        world.wait_for_cuda()
        return flag_lists.measure(world, _LISTS * repeat, call, (0.35, 0.08))
