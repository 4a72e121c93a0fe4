__global__ void fused(const float* x, const float* bias, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + (bias != nullptr ? bias[0] : 0.0f);
}

static torch::Tensor fuse(const torch::Tensor& x, const std::optional<torch::Tensor>& bias) {
  auto y = torch::empty_like(x);
  const int n = x.numel();
  fused<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), bias.has_value() ? bias->data_ptr<float>() : nullptr,
                                  y.data_ptr<float>(), n);
  return y;
}

torch::Tensor run(torch::Tensor x) {
  std::vector<torch::Tensor> parts = {fuse(x, std::nullopt), fuse(x, torch::ones({1}, x.options()))};
  return torch::cat({torch::stack(parts).view(-1), parts[0]});
}
