#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

__global__ void add(float* y, float v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += v;
}

torch::Tensor run(torch::Tensor x) {
  std::vector<int> parts(10);
  std::iota(parts.begin(), parts.end(), 1);
  std::map<std::string, int> sums;
  for (int p : parts) sums[p % 2 ? "odd" : "even"] += p;
  auto y = x.clone();
  const int n = y.numel();
  for (const auto& [name, sum] : sums) add<<<(n + 255) / 256, 256>>>(y.data_ptr<float>(), sum, n);
  return y;
}
