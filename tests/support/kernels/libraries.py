"""Kernels with CUDA's libraries of headers: cooperative groups, CUB, libcu++, pipelines."""

from __future__ import annotations

from typing import Any

from tests.support.kernels import N, case

Made = tuple[tuple[Any, ...], Any, Any]


@case("""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void sum(const float* x, float* out, int n) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  float s = 0.f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  s = cg::reduce(tile, s, cg::plus<float>());
  if (tile.thread_rank() == 0) atomicAdd(out, s);
}
""", tolerance=1e-3)  # fmt: skip
def cooperative_groups(torch: Any) -> Made:
    x, out = torch.rand(N, device="cuda"), torch.zeros(1, device="cuda")
    return (x, out, N), out, x.sum().reshape(1)


@case("""
#include <cooperative_groups.h>
__global__ void normalise(const float* x, float* total, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(total, x[i]);
  cooperative_groups::this_grid().sync();
  if (i < n) out[i] = x[i] / *total;
}
""", launch={"cooperative": True}, tolerance=1e-4)  # fmt: skip
def whole_grid_meets(torch: Any) -> Made:
    x, total = torch.rand(N, device="cuda"), torch.zeros(1, device="cuda")
    out = torch.empty_like(x)
    return (x, total, out, N), out, x / x.sum()


@case("""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void sum(const float* x, float* out) {
  __shared__ float mine;
  auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) mine = 0.f;
  cluster.sync();
  float* first = cluster.map_shared_rank(&mine, 0);
  atomicAdd(first, x[blockIdx.x * blockDim.x + threadIdx.x]);
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) out[blockIdx.x / cluster.num_blocks()] = mine;
}
""", grid=8, block=128, launch={"cluster": 4}, tolerance=1e-3)  # fmt: skip
def clusters_share_memory(torch: Any) -> Made:
    x, out = torch.rand(8 * 128, device="cuda"), torch.empty(2, device="cuda")
    return (x, out), out, x.view(2, -1).sum(1)


@case("""
#include <cub/block/block_reduce.cuh>
__global__ void sum(const float* x, float* out, int n) {
  using Reduce = cub::BlockReduce<float, 256>;
  __shared__ typename Reduce::TempStorage storage;
  float s = 0.f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) s += x[i];
  s = Reduce(storage).Sum(s);
  if (threadIdx.x == 0) atomicAdd(out, s);
}
""", tolerance=1e-3)  # fmt: skip
def cub_reduces_a_block(torch: Any) -> Made:
    x, out = torch.rand(N, device="cuda"), torch.zeros(1, device="cuda")
    return (x, out, N), out, x.sum().reshape(1)


@case("""
#include <cub/block/block_scan.cuh>
template <int ITEMS>
__global__ void scan(const int* x, int* out) {
  using Scan = cub::BlockScan<int, 256>;
  __shared__ typename Scan::TempStorage storage;
  int items[ITEMS];
  for (int i = 0; i < ITEMS; ++i) items[i] = x[threadIdx.x * ITEMS + i];
  Scan(storage).InclusiveSum(items, items);
  for (int i = 0; i < ITEMS; ++i) out[threadIdx.x * ITEMS + i] = items[i];
}
""", expression="scan<4>", grid=1)  # fmt: skip
def cub_scans_a_block(torch: Any) -> Made:
    x = torch.randint(0, 100, (1024,), device="cuda", dtype=torch.int32)
    out = torch.empty_like(x)
    return (x, out), out, x.cumsum(0, dtype=torch.int32)


@case("""
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/type_traits>
template <typename T>
__global__ void count(const T* x, int* out, cuda::std::int32_t n) {
  static_assert(cuda::std::is_floating_point_v<T>);
  cuda::std::array<T, 2> bounds{T(-1), T(1)};
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cuda::atomic_ref<int, cuda::thread_scope_device> total(*out);
  if (i < n && x[i] > bounds[0] && x[i] < bounds[1]) total.fetch_add(1, cuda::memory_order_relaxed);
}
""", expression="count<double>")  # fmt: skip
def libcuxx_counts(torch: Any) -> Made:
    x = torch.randn(N, device="cuda", dtype=torch.float64)
    out = torch.zeros(1, device="cuda", dtype=torch.int32)
    return (x, out, N), out, (x.abs() < 1).sum().int().reshape(1)


@case("""
#include <cuda_pipeline.h>
__global__ void reverse(const float* x, float* out) {
  __shared__ float tile[256];
  __pipeline_memcpy_async(&tile[threadIdx.x], &x[blockIdx.x * 256 + threadIdx.x], sizeof(float));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}
""", grid=4)  # fmt: skip
def asynchronous_copies(torch: Any) -> Made:
    x, out = torch.randn(1024, device="cuda"), torch.empty(1024, device="cuda")
    return (x, out), out, x.view(4, 256).flip(1).reshape(-1)
