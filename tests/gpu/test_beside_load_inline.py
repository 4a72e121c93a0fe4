"""Each kernel of the corpus has the numbers that it has as a kernel of ``load_inline``: by nvcc, in
a module with torch's headers."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import warmcc
from tests.support.daemons import Daemon
from tests.support.kernels import Case, cases
from warmcc.client.connection import session

# Launches a kernel with parameters that Python has packed.
_LAUNCH = """
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>
#include <vector>

void launch(
    std::vector<std::string> values, std::vector<int64_t> dims, int64_t shared, int64_t cluster,
    bool cooperative) {{
  const void* kernel = (const void*)&{expression};
  std::vector<void*> pointers;
  for (auto& value : values) pointers.push_back(value.data());
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {{}};
  config.gridDim = dim3(dims[0], dims[1], dims[2]);
  config.blockDim = dim3(dims[3], dims[4], dims[5]);
  config.dynamicSmemBytes = shared;
  config.attrs = attributes;
  if (cluster) {{
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs].val.clusterDim.x = cluster;
    attributes[config.numAttrs].val.clusterDim.y = 1;
    attributes[config.numAttrs++].val.clusterDim.z = 1;
  }}
  if (cooperative) {{
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }}
  cudaError_t code = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
  if (!code) code = cudaLaunchKernelExC(&config, kernel, pointers.data());
  if (code) throw std::runtime_error(cudaGetErrorString(code));
}}
"""
_DECLARED = (
    "void launch(std::vector<std::string> values, std::vector<int64_t> dims, int64_t shared, "
    "int64_t cluster, bool cooperative);"
)
# torch's own -D options take the operators of halves away, which a kernel of its own has.
_OPERATORS = [
    f"-U__CUDA_NO_{what}__"
    for what in (
        "HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS"
    )
]  # fmt: skip


def kernel_of(one: Case) -> warmcc.CudaKernel:
    return warmcc.kernel(one.source, one.expression, grid=one.grid, block=one.block, **one.made)


def built(one: Case) -> Any:
    """The module that ``load_inline`` makes of a kernel."""
    constants = "".join(
        f"#define {name} {value}\n" for name, value in one.made.get("constants", {}).items()
    )
    launch = _LAUNCH.format(expression=kernel_of(one).expression)
    return warmcc.load_inline(
        f"beside_{one.name}", _DECLARED, f"{constants}{one.source}{launch}", functions=["launch"],
        extra_cuda_cflags=_OPERATORS,
    )  # fmt: skip


def packed(kind: Any, value: Any) -> bytes:
    """A parameter as the kernel gets it."""
    if isinstance(value, torch.Tensor):
        return struct.pack("Q", value.data_ptr())
    if kind.kind == "struct":
        return bytes(value)
    if kind.kind == "bfloat16":
        return struct.pack("f", value)[2:]
    return struct.pack(kind.format, value)


def three(dims: Any) -> tuple[int, ...]:
    known = (dims,) if isinstance(dims, int) else tuple(dims)
    return (*known, 1, 1)[:3]


def can_run(one: Case) -> bool:
    return "cluster" not in one.launch or torch.cuda.get_device_capability() >= (9, 0)


@pytest.fixture(scope="module")
def modules(daemon: Daemon) -> Iterator[dict[str, Any]]:
    """All modules, built side by side."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in daemon.environment.items():
            patch.setenv(name, value)
        session.forget()
        chosen = [case for case in cases() if can_run(case)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(built, chosen))
        yield {case.name: module for case, module in zip(chosen, made, strict=True)}
        session.forget()


@pytest.mark.slow
@pytest.mark.parametrize("one", cases(), ids=lambda one: one.name)
def test_has_the_numbers_of_load_inline(one: Case, modules: dict[str, Any]) -> None:
    if not can_run(one):
        pytest.skip("needs a GPU with clusters")
    torch.manual_seed(0)
    arguments, found, _ = one.make(torch)
    kernel = kernel_of(one)
    kernel(*arguments, **one.launch)
    torch.manual_seed(0)
    same, expected, _ = one.make(torch)
    grid = one.grid(*same) if callable(one.grid) else one.grid
    parameters = kernel.signature.parameters
    values = [packed(two.type, value) for two, value in zip(parameters, same, strict=True)]
    modules[one.name].launch(
        values, [*three(grid), *three(one.block)], one.launch.get("shared", 0),
        one.launch.get("cluster", 0), one.launch.get("cooperative", False),
    )  # fmt: skip
    torch.cuda.synchronize()
    torch.testing.assert_close(found, expected, rtol=one.tolerance, atol=one.tolerance)
