"""Kernels without headers, or with CUDA's own number types."""

from __future__ import annotations

from typing import Any

from tests.support.kernels import N, case

Made = tuple[tuple[Any, ...], Any, Any]


@case("""
extern "C" __global__ void add(const float* x, const float* y, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}
""", grid=lambda x, y, out, n: -(-n // 256))  # fmt: skip
def add(torch: Any) -> Made:
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    out = torch.empty_like(x)
    return (x, y, out, N), out, x + y


@case("""
__global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, long long n) {
  for (long long i = blockIdx.x * THREADS + threadIdx.x; i < n; i += (long long)gridDim.x * THREADS)
    y[i] = a * x[i] + y[i];
}
""", made={"constants": {"THREADS": 256}})  # fmt: skip
def saxpy(torch: Any) -> Made:
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    expected = 1.5 * x + y
    return (1.5, x, y, N), y, expected


@case("""
__global__ void relu(const float* x, long sx0, long sx1, float* out, int rows, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  float v = x[(i / columns) * sx0 + (i % columns) * sx1];
  out[i] = v > 0.f ? v : 0.f;
}
""", made={"strided": ("x",)})  # fmt: skip
def relu_of_a_transposed(torch: Any) -> Made:
    x = torch.randn(50, 100, device="cuda").t()
    out = torch.empty(100, 50, device="cuda")
    return (x, *x.stride(), out, 100, 50), out, x.relu()


@case("""
__global__ void sum(const float* x, float* out, int n) {
  __shared__ float part[256];
  float s = 0.f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) s += x[i];
  part[threadIdx.x] = s;
  __syncthreads();
  for (int half = 128; half; half >>= 1) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, part[0]);
}
""", tolerance=1e-3)  # fmt: skip
def sum_in_shared_memory(torch: Any) -> Made:
    x, out = torch.rand(N, device="cuda"), torch.zeros(1, device="cuda")
    return (x, out, N), out, x.sum().reshape(1)


@case("""
__global__ void row_max(const float* x, float* out, int columns) {
  float m = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += 32) m = fmaxf(m, x[blockIdx.x * columns + i]);
  for (int lane = 16; lane; lane >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, lane));
  if (threadIdx.x == 0) out[blockIdx.x] = m;
}
""", grid=100, block=32, made={"options": ["-DINFINITY=__int_as_float(0x7f800000)"]})  # fmt: skip
def max_of_rows_by_shuffles(torch: Any) -> Made:
    x, out = torch.randn(100, 300, device="cuda"), torch.empty(100, device="cuda")
    return (x, out, 300), out, x.amax(1)


@case("""
__global__ void histogram(const int* x, unsigned long long* bins, int n) {
  __shared__ unsigned int mine[64];
  if (threadIdx.x < 64) mine[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
    atomicAdd(&mine[x[i]], 1u);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], (unsigned long long)mine[threadIdx.x]);
}
""")  # fmt: skip
def histogram_by_atomics(torch: Any) -> Made:
    x = torch.randint(0, 64, (N,), device="cuda", dtype=torch.int32)
    bins = torch.zeros(64, device="cuda", dtype=torch.int64).view(torch.uint64)
    expected = torch.bincount(x, minlength=64)
    return (x, bins, N), bins.view(torch.int64), expected


@case("""
__global__ void total(const double* x, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, x[i]);
}
""", tolerance=1e-8)  # fmt: skip
def atomics_of_doubles(torch: Any) -> Made:
    x = torch.rand(N, device="cuda", dtype=torch.float64)
    out = torch.zeros(1, device="cuda", dtype=torch.float64)
    return (x, out, N), out, x.sum().reshape(1)


@case("""
__global__ void transpose(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  if (r < rows && c < columns) tile[threadIdx.y][threadIdx.x] = x[r * columns + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
  if (r < columns && c < rows) out[r * rows + c] = tile[threadIdx.x][threadIdx.y];
}
""", grid=(4, 3), block=(32, 32))  # fmt: skip
def transpose_by_tiles(torch: Any) -> Made:
    x, out = torch.randn(70, 100, device="cuda"), torch.empty(100, 70, device="cuda")
    return (x, out, 70, 100), out, x.t()


@case("""
#define TILE 16
__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float s = 0.f;
  for (int t = 0; t < k; t += TILE) {
    as[threadIdx.y][threadIdx.x] =
        row < m && t + threadIdx.x < k ? a[row * k + t + threadIdx.x] : 0.f;
    bs[threadIdx.y][threadIdx.x] =
        column < n && t + threadIdx.y < k ? b[(t + threadIdx.y) * n + column] : 0.f;
    __syncthreads();
    for (int i = 0; i < TILE; ++i) s += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = s;
}
""", grid=(6, 5), block=(16, 16), tolerance=1e-3)  # fmt: skip
def matmul_by_tiles(torch: Any) -> Made:
    a, b = torch.randn(70, 50, device="cuda"), torch.randn(50, 90, device="cuda")
    c = torch.empty(70, 90, device="cuda")
    return (a, b, c, 70, 90, 50), c, (a.double() @ b.double()).float()


@case("""
template <typename T, int N>
__global__ void add(const T* x, T* out, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * N;
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (i + j < n) out[i + j] = x[i + j] + T(N);
}
""", expression="add<float, 4>")  # fmt: skip
def template_of_a_type_and_a_number(torch: Any) -> Made:
    x = torch.randn(N, device="cuda")
    out = torch.empty_like(x)
    return (x, out, N), out, x + 4


@case("""
#include <cuda_fp16.h>
namespace maths {
template <typename T> struct Square { __device__ T operator()(T v) const { return v * v; } };
template <typename T, template <typename> class F = Square>
__global__ void map(const T* x, T* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = F<T>()(x[i]);
}
}
""", expression="maths::map<__half, maths::Square>", tolerance=1e-3)  # fmt: skip
def template_in_a_namespace(torch: Any) -> Made:
    x = torch.randn(N, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)
    return (x, out, N), out, x * x


@case("""
#include <cuda_bf16.h>
__global__ void scale(const __nv_bfloat16* x, __nv_bfloat16* out, __nv_bfloat16 by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hmul(x[i], by);
}
""", tolerance=1e-2)  # fmt: skip
def bfloat16_with_a_number_of_it(torch: Any) -> Made:
    x = torch.randn(N, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    return (x, out, 0.75, N), out, x * 0.75


@case("""
#include <cuda_fp16.h>
__global__ void fma2(const __half2* x, const __half2* y, __half2* out, int pairs) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < pairs) out[i] = __hfma2(x[i], y[i], __float2half2_rn(1.f));
}
""", tolerance=1e-2)  # fmt: skip
def pairs_of_halves(torch: Any) -> Made:
    x = torch.randn(N, device="cuda", dtype=torch.float16)
    y = torch.randn(N, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)
    return (x, y, out, N // 2), out, (x.float() * y.float() + 1).half()


@case("""
__global__ void negate(const float4* x, float4* out, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 v = x[i]; out[i] = make_float4(-v.x, -v.y, -v.z, -v.w); }
}
""")  # fmt: skip
def four_floats_at_a_time(torch: Any) -> Made:
    x = torch.randn(N, device="cuda")
    out = torch.empty_like(x)
    return (x, out, N // 4), out, -x


@case("""
#include <cuda_fp8.h>
__global__ void to_fp8(const float* x, __nv_fp8_e4m3* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __nv_fp8_e4m3(x[i]);
}
""", tolerance=0.0)  # fmt: skip
def to_eight_bits(torch: Any) -> Made:
    x = torch.randn(N, device="cuda")
    out = torch.empty(N, device="cuda", dtype=torch.float8_e4m3fn)
    return (x, out, N), out.view(torch.uint8), x.to(torch.float8_e4m3fn).view(torch.uint8)


@case("""
__global__ void multiply(const float2* x, const float2* y, float2* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float2 a = x[i], b = y[i];
  out[i] = make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
""", tolerance=1e-4)  # fmt: skip
def complex_numbers(torch: Any) -> Made:
    x = torch.randn(N, device="cuda", dtype=torch.complex64)
    y = torch.randn(N, device="cuda", dtype=torch.complex64)
    out = torch.empty_like(x)
    return (x, y, out, N), torch.view_as_real(out), torch.view_as_real(x * y)


@case("""
__global__ void gather(const double* x, const long long* index, const bool* keep, double* out,
                       int n, bool negated) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = keep[i] ? (negated ? -x[index[i]] : x[index[i]]) : 0.0;
}
""")  # fmt: skip
def gather_with_a_mask(torch: Any) -> Made:
    x = torch.randn(N, device="cuda", dtype=torch.float64)
    index = torch.randint(0, N, (N,), device="cuda")
    keep = torch.rand(N, device="cuda") > 0.5
    out = torch.empty_like(x)
    return (x, index, keep, out, N, True), out, torch.where(keep, -x[index], torch.zeros_like(x))


@case("""
struct Affine { float scale; float shift; int times; };
__global__ void apply(const float* x, float* out, const Affine by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  for (int t = 0; t < by.times; ++t) v = v * by.scale + by.shift;
  out[i] = v;
}
""")  # fmt: skip
def a_structure_by_value(torch: Any) -> Made:
    import struct

    x = torch.randn(N, device="cuda")
    out = torch.empty_like(x)
    return (x, out, struct.pack("ffi", 0.5, 1.0, 2), N), out, (x * 0.5 + 1) * 0.5 + 1


@case("""
extern __shared__ float row[];
__global__ void softmax(const float* x, float* out, int columns) {
  __shared__ float part[256];
  const float* from = x + (long)blockIdx.x * columns;
  float m = -3.4e38f;
  for (int i = threadIdx.x; i < columns; i += 256) m = fmaxf(m, row[i] = from[i]);
  part[threadIdx.x] = m;
  __syncthreads();
  for (int h = 128; h; h >>= 1) {
    if (threadIdx.x < h) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + h]);
    __syncthreads();
  }
  m = part[0];
  __syncthreads();
  float s = 0.f;
  for (int i = threadIdx.x; i < columns; i += 256) s += row[i] = expf(row[i] - m);
  part[threadIdx.x] = s;
  __syncthreads();
  for (int h = 128; h; h >>= 1) {
    if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < columns; i += 256)
    out[(long)blockIdx.x * columns + i] = row[i] / part[0];
}
""", grid=8, launch={"shared": 20_000 * 4})  # fmt: skip
def softmax_in_much_shared_memory(torch: Any) -> Made:
    x, out = torch.randn(8, 20_000, device="cuda"), torch.empty(8, 20_000, device="cuda")
    return (x, out, 20_000), out, x.softmax(1)
