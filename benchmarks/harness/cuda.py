"""What the CUDA scenarios share: a kernel as users write it, a world with warm CUDA, and the
table's row.

No GPU is needed: modules are compiled, linked and imported. Where there is one, they are also
called.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import time
from collections.abc import Callable

from benchmarks.harness.callers import Call, Caller, new_number
from benchmarks.harness.measuring import Unsound, interleaved, seconds
from benchmarks.harness.results import Outcome, Target, pair
from benchmarks.harness.world import Side, World

_KERNEL = """
__global__ void {name}(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * {number};
}}
"""
_HOST = """
torch::Tensor {function}(torch::Tensor x) {{
  TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
  auto y = torch::empty_like(x);
  int n = x.numel();
  {kernel}<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}}
"""


def kernel(number: int, name: str = "scale") -> str:
    return _KERNEL.format(number=number, name=name)


def toy(includes: str = "", **arguments: object) -> Call:
    """A CUDA toy of which no other call of this run has the source, nor any name in it."""
    number = new_number()
    return _toy(number, f"cuda_{number}", f"scale_{number}", f"f_{number}", includes, arguments)


def edited_toy() -> Call:
    """The same extension each time, but for the body of its kernel."""
    return _toy(new_number(), "edited", "scale", "f", "", {})


def _toy(
    number: int, name: str, called: str, function: str, includes: str, arguments: dict[str, object]
) -> Call:
    sources = {
        "cpp_sources": f"torch::Tensor {function}(torch::Tensor x);",
        "cuda_sources": includes
        + kernel(number, called)
        + _HOST.format(function=function, kernel=called),
        "functions": [function],
    }
    computed = f"module.{function}(torch.ones(4).cuda()).tolist() == [{number}] * 4"
    check = f"hasattr(module, '{function}') and (not torch.cuda.is_available() or {computed})"
    return Call("load_inline", name, {**sources, **arguments}, check)


def library_headers() -> list[str]:
    """Where the headers of cuSPARSE and its like are, which ``ATen/cuda/CUDAContext.h`` wants:
    torch's own wheels bring them when the toolkit does not."""
    import torch

    packages = os.path.dirname(os.path.dirname(torch.__file__))
    places = [os.path.join(packages, "nvidia", name, "include") for name in ("cu13", "cusparse")]
    return [path for path in places if os.path.exists(os.path.join(path, "cusparse.h"))]


def name_an_architecture(world: World) -> None:
    """One where there is no GPU to ask. torch's files for CMake would name all that it knows then,
    of which a newer toolkit lacks some."""
    if not os.path.exists("/proc/driver/nvidia/gpus"):
        world.environment.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")


class CudaWorld(World):
    """A world whose daemon makes CUDA warm, for one architecture where there is no GPU to ask."""

    def __init__(self, **settings: str) -> None:
        super().__init__(prewarm_cuda="1", **settings)
        name_an_architecture(self)
        if os.path.exists("/usr/local/cuda/bin/nvcc"):
            self.environment.setdefault("CUDA_HOME", "/usr/local/cuda")

    def wait_for_cuda(self, limit: float = 600.0) -> None:
        """Wait until the CUDA profiles that are being made are ready. Raises Unsound."""
        deadline = time.monotonic() + limit
        while (states := self._states()) != {"ready"}:
            if "failed" in states or time.monotonic() > deadline:
                raise Unsound(f"CUDA does not get warm: {states}\n{self.log_tail('daemon.log')}")
            time.sleep(0.5)

    def is_warm(self) -> bool:
        return self._states() == {"ready"}

    def _states(self) -> set[str]:
        profiles = self.status()["accelerators"]["cuda"]["profiles"]
        warming = any(
            reason == "not warm yet" for p in profiles for reason in p["no_warm_level"].values()
        )
        return {p["state"] for p in profiles} | ({"building"} if warming else set())

    def cuda_levels(self) -> dict[str, int]:
        """How many units were compiled at each level since the daemon started."""
        found: dict[str, int] = self.status()["accelerators"]["cuda"]["used"]
        return found


@functools.cache
def _shared() -> CudaWorld:
    """One world for all scenarios of a run, as it takes minutes to warm up; no scenario builds what
    another has.
    """
    world = CudaWorld()
    atexit.register(world.__exit__)
    world.__enter__()
    return world


def measure(
    repeat: int, make: Callable[[], Call], *, limit: float | None, ratio: float | None,
    warm_up: int = 0, edits: bool = False, alone: bool = False,
) -> Outcome:  # fmt: skip
    """Interleave stock and warmcc on calls that ``make`` gives; the daemon is warm and knows none
    of them. ``alone``: in a world of its own, for what would not fit into ``cuda_memory`` beside
    what other scenarios have made warm. ``edits``: calls are of one extension, which both sides
    shall have built before."""
    world = CudaWorld() if alone else _shared()
    with world if alone else contextlib.nullcontext():
        return _measure(world, repeat, make, limit, ratio, warm_up, edits)


def _measure(
    world: CudaWorld, repeat: int, make: Callable[[], Call], limit: float | None,
    ratio: float | None, warm_up: int,
    edits: bool,
) -> Outcome:  # fmt: skip

    def sample(side: Side) -> float:
        with Caller(world, side) as caller:
            return caller.make(side, make())

    world.wait_for_pch()
    world.wait_for_cuda()
    for _ in range(warm_up):  # flags of its own: the first call is nvcc's, and makes the rest warm
        sample("warmcc")
        world.wait_for_cuda()
    if edits:
        sample("stock")
        sample("warmcc")
    before = world.cuda_levels()
    taken = interleaved(
        repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")}
    )
    levels = {level: count - before.get(level, 0) for level, count in world.cuda_levels().items()}
    found = pair("", taken["stock"], taken["warmcc"])
    ours = found.warmcc.median
    targets = []
    if limit is not None:
        targets.append(Target(f"{seconds(ours)}, at most {seconds(limit)}", ours <= limit))
    if ratio is not None:
        targets.append(
            Target(
                f"stock takes {found.ratio:.1f} times as long, at least {ratio:g}",
                found.ratio >= ratio,
            )
        )
    return Outcome(found, targets=targets, facts={"levels": levels})
