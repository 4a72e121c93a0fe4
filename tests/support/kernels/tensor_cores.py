"""Kernels for tensor cores."""

from __future__ import annotations

from typing import Any

from tests.support.kernels import case

Made = tuple[tuple[Any, ...], Any, Any]
_WMMA = """
#include <mma.h>
#include <{header}>
using namespace nvcuda;
__global__ void matmul(const {type}* a, const {type}* b, float* c, int m, int n, int k) {{
  int row = blockIdx.y * 16, column = blockIdx.x * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, {type}, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, {type}, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.f);
  for (int i = 0; i < k; i += 16) {{
    wmma::load_matrix_sync(fa, a + row * k + i, k);
    wmma::load_matrix_sync(fb, b + i * n + column, n);
    wmma::mma_sync(fc, fa, fb, fc);
  }}
  wmma::store_matrix_sync(c + row * n + column, fc, n, wmma::mem_row_major);
}}
"""


def _made(torch: Any, dtype: Any) -> Made:
    a = torch.randn(64, 32, device="cuda", dtype=dtype)
    b = torch.randn(32, 96, device="cuda", dtype=dtype)
    c = torch.empty(64, 96, device="cuda")
    return (a, b, c, 64, 96, 32), c, (a.double() @ b.double()).float()


@case(_WMMA.format(header="cuda_fp16.h", type="half"), grid=(6, 4), block=32, tolerance=1e-3)
def wmma_of_halves(torch: Any) -> Made:
    return _made(torch, torch.float16)


@case(_WMMA.format(header="cuda_bf16.h", type="__nv_bfloat16"), grid=(6, 4), block=32,
      tolerance=1e-3)  # fmt: skip
def wmma_of_bfloat16(torch: Any) -> Made:
    return _made(torch, torch.bfloat16)


@case("""
__global__ void matmul(const unsigned* a, const unsigned* b, float* c) {
  // m16n8k16, one warp; a: 16 x 16 halves by rows, b: 16 x 8 halves by columns
  int lane = threadIdx.x, group = lane / 4, within = lane % 4;
  unsigned a0 = a[group * 8 + within], a1 = a[(group + 8) * 8 + within];
  unsigned a2 = a[group * 8 + within + 4], a3 = a[(group + 8) * 8 + within + 4];
  unsigned b0 = b[group * 8 + within], b1 = b[group * 8 + within + 4];
  float c0 = 0.f, c1 = 0.f, c2 = 0.f, c3 = 0.f;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  c[group * 8 + within * 2] = c0;
  c[group * 8 + within * 2 + 1] = c1;
  c[(group + 8) * 8 + within * 2] = c2;
  c[(group + 8) * 8 + within * 2 + 1] = c3;
}
""", grid=1, block=32, tolerance=1e-3)  # fmt: skip
def mma_in_ptx(torch: Any) -> Made:
    a = torch.randn(16, 16, device="cuda", dtype=torch.float16)
    b = torch.randn(8, 16, device="cuda", dtype=torch.float16)
    c = torch.empty(16, 8, device="cuda")
    words = (a.view(torch.int32).view(torch.uint32), b.view(torch.int32).view(torch.uint32))
    return (*words, c), c, (a.double() @ b.double().t()).float()
