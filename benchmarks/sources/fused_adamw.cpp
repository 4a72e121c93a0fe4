// A fused optimizer step on the CPU: AdamW over lists of tensors, one pass over memory, in parallel, with AMSGrad,
// decoupled weight decay, gradient clipping by the global norm, and scaled gradients that may have overflowed.
#include <ATen/Parallel.h>
#include <cmath>
#include <vector>

namespace {

struct Settings {
  double lr, beta1, beta2, eps, weight_decay, clip;
  bool amsgrad, maximize;
};

template <typename scalar>
double sum_of_squares(const at::Tensor& grad, double inverse_scale) {
  const scalar* values = grad.const_data_ptr<scalar>();
  return at::parallel_reduce(
      0, grad.numel(), at::internal::GRAIN_SIZE, 0.0,
      [&](int64_t begin, int64_t end, double sum) {
        for (int64_t i = begin; i < end; ++i) {
          const double one = static_cast<double>(values[i]) * inverse_scale;
          sum += one * one;
        }
        return sum;
      },
      std::plus<double>());
}

template <typename scalar>
void step_one(
    at::Tensor& param, const at::Tensor& grad, at::Tensor& average, at::Tensor& square, at::Tensor* largest,
    int64_t step, double factor, const Settings& settings) {
  scalar* p = param.mutable_data_ptr<scalar>();
  const scalar* g = grad.const_data_ptr<scalar>();
  scalar* m = average.mutable_data_ptr<scalar>();
  scalar* v = square.mutable_data_ptr<scalar>();
  scalar* w = largest != nullptr ? largest->mutable_data_ptr<scalar>() : nullptr;
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
  const double step_size = settings.lr / correction1;
  at::parallel_for(0, param.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double gradient = static_cast<double>(g[i]) * factor * (settings.maximize ? -1 : 1);
      double value = static_cast<double>(p[i]) * (1 - settings.lr * settings.weight_decay);
      const double first = settings.beta1 * static_cast<double>(m[i]) + (1 - settings.beta1) * gradient;
      const double second = settings.beta2 * static_cast<double>(v[i]) + (1 - settings.beta2) * gradient * gradient;
      double used = second;
      if (w != nullptr) {
        used = std::max(static_cast<double>(w[i]), second);
        w[i] = static_cast<scalar>(used);
      }
      value -= step_size * first / (std::sqrt(used / correction2) + settings.eps);
      p[i] = static_cast<scalar>(value);
      m[i] = static_cast<scalar>(first);
      v[i] = static_cast<scalar>(second);
    }
  });
}

void check(const std::vector<at::Tensor>& tensors, const char* name, const std::vector<at::Tensor>& like) {
  TORCH_CHECK(tensors.size() == like.size(), name, " has ", tensors.size(), " tensors, not ", like.size());
  for (size_t i = 0; i < like.size(); ++i) {
    TORCH_CHECK(tensors[i].sizes() == like[i].sizes(), name, "[", i, "] has sizes ", tensors[i].sizes());
    TORCH_CHECK(tensors[i].is_contiguous(), name, "[", i, "] is not contiguous");
    TORCH_CHECK(tensors[i].scalar_type() == like[i].scalar_type(), name, "[", i, "] is ", tensors[i].scalar_type());
  }
}

}  // namespace

// Gives the global norm of the gradients; nothing is changed when it is not finite.
double fused_adamw(
    std::vector<at::Tensor> params, std::vector<at::Tensor> grads, std::vector<at::Tensor> averages,
    std::vector<at::Tensor> squares, std::vector<at::Tensor> largest, int64_t step, double lr, double beta1,
    double beta2, double eps, double weight_decay, double clip, double scale, bool amsgrad, bool maximize) {
  const Settings settings{lr, beta1, beta2, eps, weight_decay, clip, amsgrad, maximize};
  TORCH_CHECK_VALUE(step > 0, "step must be positive, not ", step);
  TORCH_CHECK_VALUE(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, "betas must be in [0, 1)");
  check(grads, "grads", params);
  check(averages, "averages", params);
  check(squares, "squares", params);
  if (amsgrad) check(largest, "largest", params);
  at::NoGradGuard no_grad;
  double total = 0;
  for (const at::Tensor& grad : grads) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, grad.scalar_type(), "fused_adamw_norm", [&] {
      total += sum_of_squares<scalar_t>(grad, 1 / scale);
    });
  }
  const double norm = std::sqrt(total);
  if (!std::isfinite(norm)) return norm;
  const double factor = (clip > 0 && norm > clip ? clip / norm : 1.0) / scale;
  for (size_t i = 0; i < params.size(); ++i) {
    at::Tensor* most = amsgrad ? &largest[i] : nullptr;
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, params[i].scalar_type(), "fused_adamw", [&] {
      step_one<scalar_t>(params[i], grads[i], averages[i], squares[i], most, step, factor, settings);
    });
  }
  return norm;
}
