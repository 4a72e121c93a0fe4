"""33 CUDA calls with ``CC`` and ``CXX`` set, ``with_cuda=True`` and eleven lists of flags in turns,
right after the daemon has warmed up in that environment: what was made warm serves the first call,
and the default flags to the last.
"""

from __future__ import annotations

import shutil

from benchmarks.harness import Caller, Side, Unsound, cuda
from benchmarks.harness.cuda import CudaWorld
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "cuda: 33 calls with changing flags and a compiler of the caller's"
REPEAT = 1

_O3 = ["-O3"]
# For g++ and for nvcc, as public calls have them most often.
_FLAGS: list[tuple[list[str], list[str]]] = [
    ([], []),
    (_O3, _O3),
    ([], ["--use_fast_math"]),
    (_O3, ["-O3", "--use_fast_math"]),
    ([], []),
    (["-O2"], ["-O2"]),
    ([*_O3, "-std=c++17"], [*_O3, "-std=c++17"]),
    ([], ["-lineinfo"]),
    (_O3, [*_O3, "--expt-relaxed-constexpr"]),
    ([], []),
    ([], ["-O3", "--maxrregcount=64"]),
]
_ROUNDS = 3
_QUICK = {"lean", "warm"}


def _call(world: CudaWorld, side: Side, turn: int) -> float:
    host, device = _FLAGS[turn % len(_FLAGS)]
    with Caller(world, side) as caller:
        return caller.make(
            side, cuda.toy(with_cuda=True, extra_cflags=host, extra_cuda_cflags=device)
        )


def measure(repeat: int) -> Outcome:
    """Stock makes the first call of each round only: with other flags it takes the same time."""
    world = CudaWorld()
    gcc, gxx = shutil.which("gcc"), shutil.which("g++")
    if gcc is None or gxx is None:
        raise Unsound("gcc and g++ are not in PATH")
    world.environment |= {"CC": gcc, "CXX": gxx}
    with world:
        world.wait_for_pch()
        world.wait_for_cuda()
        stock, ours, levels = [], [], []
        for turn in range(_ROUNDS * len(_FLAGS) * repeat):
            if turn % len(_FLAGS) == 0:
                stock.append(_call(world, "stock", turn))
            before = world.cuda_levels()
            ours.append(_call(world, "warmcc", turn))
            levels.append(
                next(
                    (level for level, n in world.cuda_levels().items() if n > before.get(level, 0)),
                    "none",
                )
            )
        dropped = world.status()["accelerators"]["cuda"]["dropped"]
    defaults = [
        level for turn, level in enumerate(levels) if _FLAGS[turn % len(_FLAGS)] == ([], [])
    ]
    cold = sum(level not in _QUICK for level in levels)
    targets = [
        Target(f"the first call is {levels[0]}, by what was made warm", levels[0] in _QUICK),
        Target(f"{sum(level in _QUICK for level in defaults)} of {len(defaults)} calls "
               "with the default flags are",
               set(defaults) <= _QUICK),
    ]  # fmt: skip
    facts = {"levels": levels, "not by what was warm": cold, "dropped": dropped, "seconds": ours}
    return Outcome(pair("", stock, ours), [pair("first", stock[:1], ours[:1])], targets, facts)
