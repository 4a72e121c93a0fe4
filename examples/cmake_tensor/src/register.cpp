#include <torch/library.h>

#include "tensor_ops.h"

TORCH_LIBRARY(cmake_tensor, m) {
  m.def("moving_average(Tensor values, int window) -> Tensor", &cmake_tensor::moving_average);
  m.def("pairwise(Tensor left, Tensor right, int p=2) -> Tensor", &cmake_tensor::pairwise);
  m.def("summary(Tensor values) -> (float, float, float)", &cmake_tensor::summary);
}
