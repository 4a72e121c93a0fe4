"""The sources of calls, as a model that writes kernels gives them: a kernel, a host function that
checks, allocates and launches, and a declaration.

All texts are this project's own. ``$n`` is a number that no other call has; it is a part of every
name and of one constant in the kernel, so that an edit of that constant is what a user's edit is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

_ACTIVATIONS = {
    "relu": "fmaxf(v, 0.0f)",
    "gelu": "0.5f * v * (1.0f + erff(v * 0.70710678f))",
    "silu": "v / (1.0f + expf(-v))",
    "mish": "v * tanhf(log1pf(expf(v)))",
    "hardswish": "v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) / 6.0f",
    "softplus": "v > 20.0f ? v : log1pf(expf(v))",
}


@dataclass(frozen=True)
class Kernel:
    """``share`` of a hundred calls; ``host`` goes into the host function in front of its
    ``return``. ``binds``: has a PYBIND11_MODULE of its own, and no ``functions=``."""

    name: str
    share: float
    headers: tuple[str, ...]
    device: str
    host: str
    arguments: str = "torch::Tensor x"
    binds: bool = False


_EACH = """  auto y = torch::empty_like(x);
  const int64_t count = x.numel();
  const int threads = $threads;
  const int blocks = (count + threads - 1) / threads;
"""
_LAUNCH = "k_$n<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), count);"
_ROWS = """  auto y = torch::empty_like(x);
  const int rows = x.size(0), columns = x.size(1);
"""

_ELEMENTWISE = """
__device__ __forceinline__ float act_$n(float v) { return $activation; }

__global__ void k_$n(const float* __restrict__ x, float* __restrict__ y, int64_t count) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < count) y[i] = act_$n(x[i]) * $edit.5f;
}
"""
_FUSED = """
__global__ void k_$n(const float* x, const float* bias, const float* residual, float* y,
                     int64_t count, int channels) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
       i += (int64_t)gridDim.x * blockDim.x) {
    float v = x[i] + bias[i % channels];
    v = $activation;
    y[i] = v + residual[i] * $edit.0f;
  }
}
"""
_SOFTMAX = """
__global__ void k_$n(const float* x, float* y, int columns) {
  extern __shared__ float shared[];
  const float* row = x + (int64_t)blockIdx.x * columns;
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, row[i]);
  shared[threadIdx.x] = largest;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half)
      shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  largest = shared[0];
  __syncthreads();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    sum += expf((row[i] - largest) / $edit.0f);
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[(int64_t)blockIdx.x * columns + i] = expf((row[i] - largest) / $edit.0f) / shared[0];
}
"""
_LAYER_NORM = """
__inline__ __device__ float sum_$n(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffff, v, offset);
  return v;
}

__global__ void k_$n(const float* x, const float* weight, float* y, int columns) {
  const float* row = x + (int64_t)blockIdx.x * columns;
  float sum = 0.0f, squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 32) {
    sum += row[i];
    squares += row[i] * row[i];
  }
  float mean = sum_$n(sum) / columns;
  float scale = rsqrtf(sum_$n(squares) / columns - mean * mean + 1e-5f * $edit);
  for (int i = threadIdx.x; i < columns; i += 32)
    y[(int64_t)blockIdx.x * columns + i] = (row[i] - mean) * scale * weight[i];
}
"""
_MATMUL = """
#define TILE_$n $tile

__global__ void k_$n(const float* a, const float* b, float* c, int M, int N, int K) {
  __shared__ float left[TILE_$n][TILE_$n], right[TILE_$n][TILE_$n + 1];
  int row = blockIdx.y * TILE_$n + threadIdx.y, column = blockIdx.x * TILE_$n + threadIdx.x;
  float sum = 0.0f;
  for (int tile = 0; tile < (K + TILE_$n - 1) / TILE_$n; ++tile) {
    int k = tile * TILE_$n;
    left[threadIdx.y][threadIdx.x] =
        row < M && k + threadIdx.x < K ? a[row * K + k + threadIdx.x] : 0.0f;
    right[threadIdx.y][threadIdx.x] =
        column < N && k + threadIdx.y < K ? b[(k + threadIdx.y) * N + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE_$n; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row < M && column < N) c[row * N + column] = sum * $edit.0f;
}
"""
_MATMUL_HOST = """  TORCH_CHECK(x.dim() == 2 && b.dim() == 2, "matrices are wanted");
  TORCH_CHECK(x.size(1) == b.size(0), "the inner sizes differ");
  const int M = x.size(0), K = x.size(1), N = b.size(1);
  auto y = torch::zeros({M, N}, x.options());
  dim3 threads(TILE_$n, TILE_$n), blocks((N + TILE_$n - 1) / TILE_$n, (M + TILE_$n - 1) / TILE_$n);
  k_$n<<<blocks, threads>>>(x.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), M, N, K);
"""
_CONVOLUTION = """
template <int K>
__global__ void k_$n(const float* x, const float* w, float* y, int C, int H, int W, int O) {
  int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y, out = blockIdx.z;
  if (column >= W - K + 1) return;
  float sum = 0.0f;
  for (int c = 0; c < C; ++c)
#pragma unroll
    for (int i = 0; i < K; ++i)
#pragma unroll
      for (int j = 0; j < K; ++j)
        sum += x[(c * H + row + i) * W + column + j] * w[((out * C + c) * K + i) * K + j];
  y[(out * (H - K + 1) + row) * (W - K + 1) + column] = sum + $edit.0f;
}
"""
_CONVOLUTION_HOST = """  const int C = x.size(0), H = x.size(1), W = x.size(2), O = b.size(0);
  auto y = torch::empty({O, H - 2, W - 2}, x.options());
  dim3 blocks((W - 2 + $threads - 1) / $threads, H - 2, O);
  k_$n<3><<<blocks, $threads>>>(
      x.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), C, H, W, O);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
"""
_LOSS = """
__global__ void k_$n(const float* x, const float* target, float* sum, int64_t count) {
  float own = 0.0f;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
       i += (int64_t)gridDim.x * blockDim.x) {
    float difference = x[i] - target[i];
    own += difference * difference * $edit.0f;
  }
  atomicAdd(sum, own / count);
}
"""
_HALF = """
__global__ void k_$n(const __half2* x, __half2* y, int64_t pairs) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < pairs) y[i] = __hfma2(x[i], __float2half2_rn($edit.0f), x[i]);
}
"""
_HALF_HOST = """  TORCH_CHECK(x.scalar_type() == torch::kHalf, "half is wanted");
  auto y = torch::empty_like(x);
  const int64_t pairs = x.numel() / 2;
  k_$n<<<(pairs + $threads - 1) / $threads, $threads>>>(
      reinterpret_cast<const __half2*>(x.data_ptr<at::Half>()),
      reinterpret_cast<__half2*>(y.data_ptr<at::Half>()), pairs);
"""
_DISPATCH = """
template <typename scalar_t>
__global__ void k_$n(const scalar_t* x, scalar_t* y, int64_t count) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * static_cast<scalar_t>($edit);
}
"""
_DISPATCH_HOST = (
    _EACH
    + """  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "f_$n", ([&] {
    k_$n<scalar_t><<<blocks, threads>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), count);
  }));
"""
)
_CUBLAS_HOST = """  const int M = x.size(0), K = x.size(1), N = b.size(1);
  auto y = torch::empty({M, N}, x.options());
  cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
  const float alpha = $edit.0f, beta = 0.0f;
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &alpha, b.data_ptr<float>(), N,
              x.data_ptr<float>(), K, &beta, y.data_ptr<float>(), N);
"""
_PTX = """
__device__ __forceinline__ float4 load_$n(const float4* from) {
  float4 v;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from));
  return v;
}

__global__ void k_$n(const float* x, float* y, int64_t count) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < count / 4) {
    float4 v = load_$n(reinterpret_cast<const float4*>(x) + i);
    reinterpret_cast<float4*>(y)[i] = make_float4(v.x, v.y, v.z, v.w * $edit.0f);
  }
}
"""
_CUB = """
__global__ void k_$n(const float* x, float* y, int columns) {
  using Reduce = cub::BlockReduce<float, $threads>;
  __shared__ typename Reduce::TempStorage storage;
  float own = 0.0f;
  for (int i = threadIdx.x; i < columns; i += $threads)
    own += x[blockIdx.x * (int64_t)columns + i];
  float sum = Reduce(storage).Sum(own);
  if (threadIdx.x == 0) y[blockIdx.x] = sum * $edit.0f;
}
"""
_CUB_HOST = """  auto y = torch::empty({x.size(0)}, x.options());
  const int columns = x.size(1);
  k_$n<<<x.size(0), $threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), columns);
"""
_GROUPS = """
namespace cg = cooperative_groups;

__global__ void k_$n(const float* x, float* y, int64_t count) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  float v = i < count ? x[i] : 0.0f;
  for (int offset = warp.size() / 2; offset > 0; offset /= 2) v += warp.shfl_down(v, offset);
  if (warp.thread_rank() == 0 && i < count) y[i] = v * $edit.0f;
}
"""
_TWO = "torch::Tensor x, torch::Tensor b"
_DATA = "x.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>()"

KERNELS = (
    Kernel("elementwise", 28, (), _ELEMENTWISE, f"{_EACH}  {_LAUNCH}\n"),
    Kernel(
        "fused", 10, (), _FUSED,
        f"{_EACH}  k_$n<<<blocks, threads>>>(x.data_ptr<float>(), b.data_ptr<float>(), "
        "r.data_ptr<float>(), y.data_ptr<float>(), count, (int)b.numel());\n",
        f"{_TWO}, torch::Tensor r",
    ),
    Kernel(
        "softmax", 8, ("<cmath>",), _SOFTMAX,
        f"{_ROWS}  k_$n<<<rows, $threads, $threads * sizeof(float)>>>(\n"
        "      x.data_ptr<float>(), y.data_ptr<float>(), columns);\n",
    ),
    Kernel("layer_norm", 8, (), _LAYER_NORM, f"{_ROWS}  k_$n<<<rows, 32>>>({_DATA}, columns);\n",
           _TWO),
    Kernel("matmul", 14, (), _MATMUL, _MATMUL_HOST, _TWO),
    Kernel("convolution", 7, ("<stdexcept>", "<vector>"), _CONVOLUTION, _CONVOLUTION_HOST, _TWO),
    Kernel(
        "loss", 5.5, (), _LOSS,
        "  auto y = torch::zeros({1}, x.options());\n"
        f"  k_$n<<<256, $threads>>>({_DATA}, x.numel());\n", _TWO,
    ),
    Kernel("cublas", 8, ("<cublas_v2.h>", "<ATen/cuda/CUDAContext.h>"), "", _CUBLAS_HOST, _TWO),
    Kernel("half", 4, ("<cuda_fp16.h>",), _HALF, _HALF_HOST),
    Kernel("dispatch", 3, (), _DISPATCH, _DISPATCH_HOST),
    Kernel("ptx", 1.5, (), _PTX, f"{_EACH}  {_LAUNCH}\n"),
    Kernel("cub", 1, ("<cub/cub.cuh>",), _CUB, _CUB_HOST),
    Kernel("groups", 1, ("<cooperative_groups.h>",), _GROUPS, f"{_EACH}  {_LAUNCH}\n"),
    Kernel("own binding", 3, (), _ELEMENTWISE, f"{_EACH}  {_LAUNCH}\n", binds=True),
)  # fmt: skip

# What does not compile, by the part of the text that it goes into, and its share.
WRONG_HOST = {
    "undeclared name": (22, "  auto z = torch::not_there_$n(x);\n"),
    "syntax": (15, "  int columns_$n = x.size(0)\n  auto z = x;\n"),
    "type": (14, "  std::string z = x.sum();\n"),
    "arguments": (12, "  auto z = torch::add(x, 1, 2, 3, 4);\n"),
    "member": (10, "  auto z = x.not_a_member();\n"),
    "deprecated type": (8, '  AT_DISPATCH_FLOATING_TYPES(x.type(), "f_$n", ([&] {}));\n'),
}
WRONG_DEVICE = {
    "undeclared in the kernel": (8, "__global__ void w_$n(float* y) { y[0] = not_there_$n; }\n"),
    "host function in a kernel": (5, "void h_$n();\n__global__ void w_$n(float*) { h_$n(); }\n"),
}
WRONG_BINDING = "function without a declaration"  # of the declarations that ``cpp_sources`` gives
WRONG = {
    **{name: share for name, (share, _) in (WRONG_HOST | WRONG_DEVICE).items()},
    WRONG_BINDING: 6,
}


def source(
    kernel: Kernel, headers: tuple[str, ...], wrong: str, values: Mapping[str, object]
) -> tuple[str, str]:
    """The CUDA source, and the declaration of its function."""
    lines = [f"#include {header}" for header in (*headers, *kernel.headers)]
    device, host = kernel.device, kernel.host
    if wrong in WRONG_HOST:
        host += WRONG_HOST[wrong][1]
    if wrong in WRONG_DEVICE:
        device += WRONG_DEVICE[wrong][1]
    if "<c10/cuda/CUDAGuard.h>" in headers:
        host = "  const at::cuda::OptionalCUDAGuard guard(device_of(x));\n" + host
    declared = f"torch::Tensor f_$n({kernel.arguments})"
    check = '  TORCH_CHECK(x.is_cuda(), "x must be on the GPU");\n'
    text = "\n".join(lines) + f"\n{device}\n{declared} {{\n{check}{host}  return y;\n}}\n"
    if kernel.binds:
        text += 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f_$n", &f_$n, "f"); }\n'
    values = {**values, "activation": _ACTIVATIONS[str(values["activation"])]}
    declaration = "" if wrong == WRONG_BINDING else f"{declared};"
    return Template(text).substitute(values), Template(declaration).substitute(values)


ACTIVATIONS = tuple(_ACTIVATIONS)
