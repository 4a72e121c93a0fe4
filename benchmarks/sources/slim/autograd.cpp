#include <torch/extension.h>

class Swish : public torch::autograd::Function<Swish> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x * x.sigmoid();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    auto x = context->get_saved_variables()[0];
    auto s = x.sigmoid();
    return {gradients[0] * (s + x * s * (1 - s))};
  }
};

at::Tensor swish(at::Tensor x) { return Swish::apply(x); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("swish", &swish); }
