"""Save to new result, CUDA: as for C++, with a kernel in the file. No GPU is needed: the module is
compiled, linked and imported, and a function of its host side called.
"""

from __future__ import annotations

from benchmarks.harness import live
from benchmarks.harness.cuda import CudaWorld, kernel
from benchmarks.harness.results import Outcome

TITLE = "live: save to new result, CUDA"
REPEAT = 3
_HOST = """
#include <torch/types.h>
torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  scale<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
int number() { return NUMBER; }
"""


def measure(repeat: int) -> Outcome:
    with CudaWorld() as world:
        world.wait_for_pch()
        world.wait_for_cuda()
        source = "#include <torch/types.h>\n" + kernel(0).replace("* 0", "* NUMBER") + _HOST
        return live.measure(world, repeat, source, ".cu", limit=2.5)
