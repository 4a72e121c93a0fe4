#include <torch/extension.h>
using namespace torch::indexing;

__global__ void fill(float* y, int n, float v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = v;
}

torch::Tensor run(torch::Tensor x) {
  auto rows = x.view({-1, 64});
  auto part = rows.index({Slice(0, 8), Slice(None, None, 2)}).contiguous();
  auto y = torch::empty_like(part);
  fill<<<1, 256>>>(y.data_ptr<float>(), y.numel(), 3.0f);
  return part + y * 2 - 1;
}
