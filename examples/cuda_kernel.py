"""A CUDA kernel with its binding. It is built on any machine with nvcc, and run where a GPU is."""

import torch

import warmcc

KERNEL = """
__global__ void saxpy_kernel(float a, const float* x, const float* y, float* out, int64_t n) {
    int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}

at::Tensor saxpy(double a, const at::Tensor& x, const at::Tensor& y) {
    TORCH_CHECK(x.is_cuda() && y.is_cuda(), "saxpy needs tensors on a GPU");
    TORCH_CHECK(x.is_contiguous() && y.is_contiguous() && x.sizes() == y.sizes());
    auto out = at::empty_like(x);
    int64_t n = x.numel();
    saxpy_kernel<<<(n + 255) / 256, 256>>>(
        a, x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""

module = warmcc.load_inline(
    "saxpy",
    cpp_sources="at::Tensor saxpy(double a, const at::Tensor& x, const at::Tensor& y);",
    cuda_sources=KERNEL,
    functions=["saxpy"],
)

if __name__ == "__main__":
    if torch.cuda.is_available():
        x, y = torch.randn(2, 10_000, device="cuda")
        torch.testing.assert_close(module.saxpy(2.0, x, y), 2.0 * x + y)
        print("saxpy: the numbers are right")
    else:
        print("saxpy: built; there is no GPU to run it on")
