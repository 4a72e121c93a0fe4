#include <cuda/pipeline>

__global__ void copy(const float* x, float* y, int n) {
  __shared__ float tile[256];
  auto pipe = cuda::make_pipeline();
  int i = blockIdx.x * 256 + threadIdx.x;
  pipe.producer_acquire();
  if (i < n) cuda::memcpy_async(&tile[threadIdx.x], &x[i], sizeof(float), pipe);
  pipe.producer_commit();
  pipe.consumer_wait();
  if (i < n) y[i] = tile[threadIdx.x] + 1.0f;
  pipe.consumer_release();
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int n = x.numel();
  copy<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
