#include <torch/extension.h>

at::Tensor shifted(const at::Tensor& x, int64_t by) {
  using namespace at::indexing;
  auto y = at::zeros_like(x);
  y.index_put_({Slice(by, None)}, x.index({Slice(None, x.size(0) - by)}));
  return y;
}

at::Tensor first(const at::Tensor& x) { return x[0] + 1; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("shifted", &shifted);
  m.def("first", &first);
}
