#include <cuda_runtime.h>
#include <cstdint>

__global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" void launch_saxpy(std::intptr_t x, std::intptr_t y, int n) {
  saxpy<<<(n + 255) / 256, 256>>>(2.0f, reinterpret_cast<float*>(x), reinterpret_cast<float*>(y), n);
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::zeros_like(x);
  launch_saxpy(reinterpret_cast<std::intptr_t>(x.data_ptr()), reinterpret_cast<std::intptr_t>(y.data_ptr()), x.numel());
  return y;
}
