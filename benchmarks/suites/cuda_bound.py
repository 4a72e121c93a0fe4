"""A CUDA unit without torch beside the C++ that binds it (``<torch/extension.h>`` there,
``functions=``), as DeepGEMM's and FlashInfer's kernels are; neither was seen before. In a new
process that has torch imported.
"""

from __future__ import annotations

from benchmarks.harness import Call, cuda, new_number
from benchmarks.harness.results import Outcome

TITLE = "cuda: a unit without torch, and its binding"
REPEAT = 3
_CUDA = """\
#include <cuda_runtime.h>
{kernel}
void launch_{number}(const float* x, float* y, int n, cudaStream_t stream) {{
  scale<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}}
"""
_BINDING = """\
#include <torch/extension.h>
#include <cuda_runtime.h>
void launch_{number}(const float* x, float* y, int n, cudaStream_t stream);
torch::Tensor f_{number}(torch::Tensor x) {{
  if (!x.is_cuda()) return x * {number};
  torch::Tensor y = torch::empty_like(x);
  launch_{number}(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), nullptr);
  return y;
}}
"""


def make() -> Call:
    number = new_number()
    arguments = {
        "cpp_sources": _BINDING.format(number=number),
        "cuda_sources": _CUDA.format(number=number, kernel=cuda.kernel(number)),
        "functions": [f"f_{number}"],
        "no_implicit_headers": True,
    }
    where = "'cuda' if torch.cuda.is_available() else 'cpu'"
    check = f"module.f_{number}(torch.ones(4, device={where})).tolist() == [{number}] * 4"
    return Call("load_inline", f"bound_{number}", arguments, check)


def measure(repeat: int) -> Outcome:
    return cuda.measure(repeat, make, limit=None, ratio=8, warm_up=1)
