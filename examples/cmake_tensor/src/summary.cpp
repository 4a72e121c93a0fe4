#include "tensor_ops.h"

namespace cmake_tensor {

std::tuple<double, double, double> summary(const at::Tensor& values) {
  TORCH_CHECK(values.numel() > 0, "summary: the tensor is empty");
  const auto numbers = values.to(at::kDouble);
  return {numbers.min().item<double>(), numbers.max().item<double>(), numbers.mean().item<double>()};
}

}  // namespace cmake_tensor
