"""Units beyond plain kernels that are lean all the same: the result is nvcc's."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

import warmcc
from tests.support.cuda import (
    WHOLE,
    CudaDaemon,
    build,
    compared,
    levels,
    library_headers,
    new_number,
    new_toy,
    refuses_a_cpu_tensor,
)
from warmcc.daemon.cuda.unit_text import own_text

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("said", ['"Scales."', 'py::arg("x"), "Scales."'])
def test_a_module_that_binds_itself(client: CudaDaemon, said: str) -> None:
    bound = f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("run", &run, {said}); }}\n'
    before, samples = levels(client), compared(client)
    module = warmcc.load_inline("own_module", "", cuda_sources=WHOLE + new_toy() + bound)
    assert refuses_a_cpu_tensor(module)
    assert module.run.__doc__.endswith("Scales.\n")
    assert levels(client, before) == {"lean": 1}
    now = compared(client, after=samples)
    assert now == {**samples, "CUDA same": samples.get("CUDA same", 0) + 1}


@pytest.mark.parametrize("flag", ["-arch=sm_90a", "-gencode=arch=compute_90,code=compute_90"])
def test_two_devices_of_one_generation_and_ptx_that_stays_ptx(
    client: CudaDaemon, flag: str
) -> None:
    build("generations", new_toy(), extra_cuda_cflags=[flag])
    client.wait_for_cuda()  # until its profile is there
    before, samples = levels(client), compared(client)
    assert refuses_a_cpu_tensor(build("generations", new_toy(), extra_cuda_cflags=[flag]))
    assert levels(client, before) == {"lean": 1}
    now = compared(client, after=samples)
    assert now.get("CUDA different", 0) == 0 and now["CUDA same"] > samples.get("CUDA same", 0)


def test_features_of_a_device_are_lean_at_first_sight(client: CudaDaemon) -> None:
    """The host's prelude is that of the device without them, and g++ takes it."""
    before, samples, not_faster = levels(client), compared(client), client.cuda()["not_faster"]
    flags = ["-gencode=arch=compute_90a,code=sm_90a"]
    assert refuses_a_cpu_tensor(build("features", new_toy(), extra_cuda_cflags=flags))
    assert levels(client, before) == {"lean": 1}
    assert client.cuda()["not_faster"] == not_faster  # which tells of refused headers, too
    now = compared(client, after=samples)
    assert now == {**samples, "CUDA same": samples.get("CUDA same", 0) + 1}


_DROPOUT = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <curand_kernel.h>
#include <mutex>
__global__ void drop(const float* x, float* y, int n, at::PhiloxCudaState state) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto seeds = at::cuda::philox::unpack(state);
  curandStatePhilox4_32_10_t random;
  curand_init(std::get<0>(seeds), i, std::get<1>(seeds), &random);
  if (i < n) y[i] = curand_uniform(&random) < FACTOR / 1e12f ? 0.f : x[i];
}
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
  auto y = torch::empty_like(x);
  auto generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      std::nullopt, at::cuda::detail::getDefaultCUDAGenerator());
  at::PhiloxCudaState state;
  {
    std::lock_guard<std::mutex> lock(generator->mutex_);
    state = generator->philox_cuda_state(4);
  }
  auto stream = at::cuda::getCurrentCUDAStream();
  drop<<<1, 32, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), state);
  return y;
}
"""


def test_random_numbers_of_torchs_generator(client: CudaDaemon) -> None:
    """Its headers are not among the host's prelude's: g++ gets them from the unit."""
    more = {"extra_include_paths": folders} if (folders := library_headers()) else {}
    source = _DROPOUT.replace("FACTOR", f"{new_number()}.0f")
    build("drops", source, **more)
    client.wait_for_cuda()
    before, samples = levels(client), compared(client)
    assert refuses_a_cpu_tensor(build("drops", source.replace("0.f :", "1.f :"), **more))
    assert levels(client, before) == {"lean": 1}
    now = compared(client, after=samples)
    assert now.get("CUDA different", 0) == 0 and now["CUDA same"] > samples.get("CUDA same", 0)


_WITH_FALLBACK = """
#include <torch/types.h>
#ifndef TORCH_CHECK
#define TORCH_CHECK AT_CHECK
#endif
#include <c10/cuda/CUDAGuard.h>
"""


def test_a_fallback_for_an_old_torch(client: CudaDaemon) -> None:
    build("fallback", _WITH_FALLBACK + new_toy())
    client.wait_for_cuda()
    before, samples = levels(client), compared(client)
    assert refuses_a_cpu_tensor(build("fallback", _WITH_FALLBACK + new_toy()))
    assert levels(client, before) == {"lean": 1}
    now = compared(client, after=samples)
    assert now.get("CUDA different", 0) == 0 and now["CUDA same"] > samples.get("CUDA same", 0)


def test_the_headers_behind_which_there_is_no_fallback_have_the_macro(nvcc: str) -> None:
    """Each of them by itself, as the compiler reads it."""
    torch_folder = Path(torch.__file__).parent
    folders = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
    folders += [Path(sysconfig.get_paths()["include"]), Path(nvcc) / "include"]
    words = [f"-I{folder}" for folder in [*folders, *library_headers()]]
    for header in sorted(own_text.DEFINES_CHECK):
        told = subprocess.run(
            ["g++", "-std=c++20", "-x", "c++", "-E", "-dM", *words, "-"], check=True,
            input=f"#include <{header}>\n", capture_output=True, text=True,
        )  # fmt: skip
        assert "#define TORCH_CHECK(" in told.stdout, header
