#include "tensor_ops.h"

namespace cmake_tensor {

at::Tensor moving_average(const at::Tensor& values, int64_t window) {
  TORCH_CHECK(values.dim() > 0, "moving_average: a tensor of one dimension or more is needed");
  TORCH_CHECK(window > 0 && window <= values.size(-1), "moving_average: window ", window,
              " is not between 1 and ", values.size(-1));
  return values.unfold(-1, window, 1).mean(-1);
}

}  // namespace cmake_tensor
