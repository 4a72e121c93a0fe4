// The operators of this library, which Python sees as torch.ops.cmake_tensor.*.
#pragma once

#include <torch/types.h>

#include <tuple>

namespace cmake_tensor {

// Means of `window` neighbours along the last dimension: (..., n) to (..., n - window + 1).
at::Tensor moving_average(const at::Tensor& values, int64_t window);

// Distances between the rows of (n, d) and of (m, d), as (n, m). `p` is 1 or 2.
at::Tensor pairwise(const at::Tensor& left, const at::Tensor& right, int64_t p);

// Smallest and largest value, and mean.
std::tuple<double, double, double> summary(const at::Tensor& values);

#ifdef WITH_CUDA
at::Tensor pairwise_cuda(const at::Tensor& left, const at::Tensor& right, int64_t p);
#endif

}  // namespace cmake_tensor
