"""A daemon with warm CUDA, and the calls that tests of CUDA units make."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

import warmcc
from tests.support import ROOT
from tests.support.daemons import Daemon
from warmcc import record
from warmcc.record import Span

UNITS = sorted((ROOT / "tests/cuda/units").glob("*.cu"))
HOME = next(
    (path for path in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda") if os.path.exists(path)),
    "",
)


ARCHITECTURE = {"CUDA_HOME": HOME, "TORCH_CUDA_ARCH_LIST": "9.0"}


def why_not() -> str | None:
    """Why no CUDA units can be built here, or None."""
    import torch

    if torch.version.cuda is None or not shutil.which("nvcc", path=f"{HOME}/bin"):
        return "needs nvcc, and a torch that was built for CUDA"
    return None


class CudaDaemon(Daemon):
    """A daemon whose CUDA profiles can be waited for."""

    def __init__(self, folder: str | None = None, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.environment |= ARCHITECTURE

    def cuda(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["accelerators"]["cuda"]
        return found

    def wait_for_cuda(self, seconds: float = 900.0) -> None:
        """Wait until the profiles that are being made are ready, or given up."""
        deadline = time.monotonic() + seconds
        while self.status()["prewarming"] or any(map(is_warming, self.cuda()["profiles"])):
            assert time.monotonic() < deadline, f"CUDA does not get warm:\n{self.log()}"
            time.sleep(0.2)


def is_warming(profile: dict[str, Any]) -> bool:
    return profile["state"] == "building" or "not warm yet" in profile["no_warm_level"].values()


def library_headers() -> list[str]:
    """Where torch's wheels have the headers of cuBLAS and its like, if the toolkit has none."""
    import torch

    wheel = os.path.join(os.path.dirname(torch.__file__), "../nvidia/cu13/include")
    known = [f"{HOME}/include", os.path.normpath(wheel)]
    found = [one for one in known if os.path.exists(f"{one}/cublas_v2.h")]
    return [one for one in found[:1] if one != known[0]]


_numbers = itertools.count(int(time.time()))
DECLARATION = "torch::Tensor run(torch::Tensor x);"
TOY = """
__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * FACTOR;
}
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
  auto y = torch::empty_like(x);
  scale<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""


def new_number() -> int:
    """A number that no other source of this run holds."""
    return next(_numbers)


WHOLE = "#include <torch/extension.h>\n"  # which most sources begin with


def new_toy() -> str:
    return TOY.replace("FACTOR", f"{new_number()}.0f")


def build(name: str, source: str, **more: Any) -> Any:
    return warmcc.load_inline(name, DECLARATION, cuda_sources=source, functions=["run"], **more)


def levels(daemon: CudaDaemon, before: dict[str, int] | None = None) -> dict[str, int]:
    found = daemon.cuda()["used"]
    return {
        level: n - (before or {}).get(level, 0)
        for level, n in found.items()
        if n != (before or {}).get(level, 0)
    }


def refuses_a_cpu_tensor(module: Any) -> bool:
    """Without a GPU this is as far as a call gets: through the binding into the user's host
    code.
    """
    import torch

    with pytest.raises(RuntimeError, match="x must be on the GPU"):
        module.run(torch.ones(4))
    return True


def compared(daemon: CudaDaemon, after: dict[str, int] | None = None) -> dict[str, int]:
    """How the comparisons of CUDA units with nvcc's own ended so far; waits until there is one more
    than ``after``.
    """
    deadline = time.monotonic() + 400
    while after is not None and compared(daemon) == after and time.monotonic() < deadline:
        time.sleep(0.5)
    samples = daemon.status()["accelerators"]["samples"]
    return {name: count for name, count in samples.items() if name.startswith("CUDA")}


@contextlib.contextmanager
def looking(daemon: CudaDaemon, look: Callable[[psutil.Process], None]) -> Iterator[None]:
    """Look at each process that the daemon runs meanwhile, again and again."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            for process in daemon.processes():
                with contextlib.suppress(psutil.Error):
                    look(process)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def spans_of_last(client: CudaDaemon) -> list[Span]:
    """Of the last request that was answered."""
    time.sleep(0.2)  # the log is written by a thread
    return [
        line.answered
        for line in record.read(client.state_dir / "log.jsonl")
        if line.answered is not None
    ][-1].spans


def overlap(one: list[Span], other: list[Span]) -> bool:
    return any(a.start < b.end and b.start < a.end for a in one for b in other)


def niceness_behind(own: int) -> int:
    """That of a step which gives way to one with this niceness: the system knows none above 19."""
    return min(own + 10, 19)
