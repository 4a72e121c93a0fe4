#include <torch/extension.h>

template <typename scalar_t>
void scale(const scalar_t* from, scalar_t* to, int64_t count, double factor) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] * static_cast<scalar_t>(factor);
}

at::Tensor scaled(const at::Tensor& x, double factor) {
  auto from = x.contiguous();
  auto y = at::empty_like(from);
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(from.scalar_type(), "scaled", [&] {
    scale<scalar_t>(from.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), from.numel(), factor);
  });
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scaled", &scaled); }
