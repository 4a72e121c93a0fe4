"""Under ``warmcc run``, in forks of a process that has never used the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.daemons import Daemon
from tests.support.zygotes import Zygotes

TRITON = """
import sys, torch, triton, triton.language as tl

@triton.jit
def axpy(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 3 * tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

assert not torch.cuda.is_initialized()
x, y = torch.randn(2, 5000, device="cuda")
out = torch.empty_like(x)
axpy[(5,)](x, y, out, 5000, BLOCK=1024)
print(torch.allclose(out, 3 * x + y, atol=1e-5))
"""
COMPILED = """
import torch
f = torch.compile(lambda x: (x.sin() + 2).sum(-1))
x = torch.randn(300, 400, device="cuda")
print(torch.allclose(f(x), (x.sin() + 2).sum(-1)))
"""
EXTENSION = """
import torch, warmcc
assert not torch.cuda.is_initialized()
CUDA = '''#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 7 * x[i];
}
torch::Tensor scale(torch::Tensor x) {
  auto out = torch::empty_like(x);
  int n = x.numel();
  scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}'''
CPP = "torch::Tensor scale(torch::Tensor x);"
module = warmcc.load_inline("scale", CPP, CUDA, functions=["scale"])
x = torch.randn(1000, device="cuda")
print(torch.equal(module.scale(x), 7 * x))
"""


@pytest.fixture(scope="module")
def zygotes(daemon: Daemon) -> Iterator[Zygotes]:
    """Beside the daemon's socket, so that programs find both."""
    found = Zygotes()
    found.runtime = daemon.runtime_dir
    found.environment |= {**daemon.environment, "TRITON_CACHE_DIR": str(found.folder / "triton")}
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("program", [TRITON, COMPILED], ids=["triton", "torch.compile"])
def test_programs(zygotes: Zygotes, program: str) -> None:
    path = zygotes.script(program)
    for run in (zygotes.warm, zygotes.plain):
        done = run(path)
        assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
        assert "python runs it" not in done.stderr


def test_a_cuda_extension(zygotes: Zygotes) -> None:
    path = zygotes.script(EXTENSION)
    for _ in range(2):  # built, and found
        done = zygotes.warm(path)
        assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
        assert "python runs it" not in done.stderr
