"""The CUDA extension among the kernels: built once by stock's ``load_inline``, where nvcc is."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.harness import say

SECONDS = 300.0
# The kernel's unit has no header of torch's: nvcc takes seconds, not a minute.
_PROGRAM = r'''
import sys
from torch.utils.cpp_extension import load_inline
cuda = """
#include <cuda_runtime.h>
__global__ void scale_kernel(const float* x, float* y, long n) {
  long at = blockIdx.x * 256l + threadIdx.x;
  if (at < n) y[at] = x[at] * 3.0f;
}
void launch_scale(const float* x, float* y, long n, cudaStream_t stream) {
  scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"""
binding = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
void launch_scale(const float* x, float* y, long n, cudaStream_t stream);
void scale(torch::Tensor x, torch::Tensor y) {
  launch_scale(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(),
               c10::cuda::getCurrentCUDAStream());
}
"""
module = load_inline(
    "gpu_timing_scale", binding, cuda, functions=["scale"], no_implicit_headers=True,
    build_directory=sys.argv[1],
)
print(module.__file__)
'''


def build(folder: str, capability: str) -> str:
    """The path of the extension; ``-`` where it cannot be built, and why is said."""
    where = os.path.join(folder, "extension")
    os.mkdir(where)
    environment = {**os.environ, "TORCH_CUDA_ARCH_LIST": capability}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, where], env=environment, cwd=folder,
            capture_output=True, text=True, check=False, timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        say(f"load_inline took more than {SECONDS:.0f} s; its kernel is left out")
        return "-"
    if done.returncode != 0:
        say(f"load_inline failed; its kernel is left out:\n{done.stderr[-1500:]}")
        return "-"
    return done.stdout.split()[-1]
