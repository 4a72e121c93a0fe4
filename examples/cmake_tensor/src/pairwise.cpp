#include "tensor_ops.h"

namespace cmake_tensor {

at::Tensor pairwise(const at::Tensor& left, const at::Tensor& right, int64_t p) {
  TORCH_CHECK(left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(1),
              "pairwise: two tensors (n, d) and (m, d) are needed");
  TORCH_CHECK(p == 1 || p == 2, "pairwise: p is ", p, ", neither 1 nor 2");
#ifdef WITH_CUDA
  if (left.is_cuda()) return pairwise_cuda(left, right, p);
#endif
  auto difference = left.unsqueeze(1) - right.unsqueeze(0);
  return p == 1 ? difference.abs().sum(-1) : difference.square().sum(-1).sqrt();
}

}  // namespace cmake_tensor
