#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

__global__ void negate(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = -x[i];
}

torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous, but has strides ", x.strides());
  TORCH_CHECK_EQ(x.dim(), 1);
  auto y = torch::empty_like(x);
  auto stream = c10::cuda::getCurrentCUDAStream();
  const int n = x.numel();
  negate<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  C10_CUDA_CHECK(cudaStreamSynchronize(stream.stream()));
  return y;
}
