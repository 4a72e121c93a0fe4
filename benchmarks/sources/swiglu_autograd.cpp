// A custom autograd function: SwiGLU with an optional gate clamp, whose backward recomputes the gate to save memory.
#include <cmath>
#include <tuple>

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::tuple<at::Tensor, at::Tensor> halves(const at::Tensor& x) {
  TORCH_CHECK(x.size(-1) % 2 == 0, "the last dimension is odd: ", x.size(-1));
  auto parts = x.chunk(2, -1);
  return {parts[0], parts[1]};
}

at::Tensor gate_of(const at::Tensor& gate, const std::optional<double>& limit) {
  return limit.has_value() ? at::clamp(gate, -*limit, *limit) : gate;
}

struct SwiGLU : torch::autograd::Function<SwiGLU> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double beta, std::optional<double> limit) {
    context->save_for_backward({x});
    context->saved_data["beta"] = beta;
    context->saved_data["limit"] = limit;
    auto [gate, value] = halves(x);
    auto clamped = gate_of(gate, limit);
    return clamped * at::sigmoid(clamped * beta) * value;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto x = context->get_saved_variables()[0];
    const double beta = context->saved_data["beta"].toDouble();
    const auto limit = context->saved_data["limit"].toOptional<double>();
    auto [gate, value] = halves(x);
    auto clamped = gate_of(gate, limit);
    auto sigmoid = at::sigmoid(clamped * beta);
    auto swish = clamped * sigmoid;
    auto to_value = gradients[0] * swish;
    auto to_gate = gradients[0] * value * (sigmoid + beta * swish * (1 - sigmoid));
    if (limit.has_value()) to_gate = to_gate * (gate.abs() <= *limit);
    return {at::cat({to_gate, to_value}, -1), at::Tensor(), at::Tensor()};
  }
};

struct StraightThroughRound : torch::autograd::Function<StraightThroughRound> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale) {
    auto scaled = x / scale;
    auto inside = scaled.ge(-128).logical_and_(scaled.le(127));
    context->save_for_backward({inside});
    context->mark_non_differentiable({});
    return at::clamp(at::round(scaled), -128, 127) * scale;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0] * context->get_saved_variables()[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& x, double beta, std::optional<double> limit) {
  return SwiGLU::apply(x, beta, limit);
}

at::Tensor quantized_swiglu(const at::Tensor& x, double beta, std::optional<double> limit) {
  auto scale = x.detach().abs().amax(-1, true).clamp_min(1e-8) / 127;
  return SwiGLU::apply(StraightThroughRound::apply(x, scale), beta, limit);
}
