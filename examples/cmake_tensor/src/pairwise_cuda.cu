#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "tensor_ops.h"

namespace cmake_tensor {
namespace {

constexpr int kThreads = 256;

// One thread per pair of rows.
template <int P>
__global__ void distances(const float* left, const float* right, float* out, int64_t n, int64_t m,
                          int64_t d) {
  const int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (at >= n * m) return;
  const float* a = left + at / m * d;
  const float* b = right + at % m * d;
  float sum = 0;
  for (int64_t i = 0; i < d; ++i) {
    const float difference = a[i] - b[i];
    sum += P == 1 ? fabsf(difference) : difference * difference;
  }
  out[at] = P == 1 ? sum : sqrtf(sum);
}

}  // namespace

at::Tensor pairwise_cuda(const at::Tensor& left, const at::Tensor& right, int64_t p) {
  TORCH_CHECK(left.scalar_type() == at::kFloat && right.scalar_type() == at::kFloat,
              "pairwise: on CUDA, float32 is needed");
  TORCH_CHECK(right.device() == left.device(), "pairwise: both tensors must be on one device");
  const auto a = left.contiguous(), b = right.contiguous();
  auto out = at::empty({a.size(0), b.size(0)}, a.options());
  if (out.numel() == 0) return out;
  const auto blocks = static_cast<unsigned>((out.numel() + kThreads - 1) / kThreads);
  const auto kernel = p == 1 ? distances<1> : distances<2>;
  kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), a.size(0), b.size(0),
      a.size(1));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

}  // namespace cmake_tensor
