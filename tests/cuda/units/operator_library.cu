#include <torch/extension.h>
#include <torch/library.h>

__global__ void increment(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int n = x.numel();
  increment<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}

TORCH_LIBRARY_FRAGMENT(warmcc_corpus, m) {
  m.def("increment_" C10_STRINGIZE(TORCH_EXTENSION_NAME) "(Tensor x) -> Tensor", &run);
}
