template <typename F>
void each(int count, F f) {
  for (int i = 0; i < count; ++i) f(i);
}

__global__ void scale(float* y, int n, float factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] *= factor;
}

torch::Tensor run(torch::Tensor x) {
  auto y = x.clone();
  const int n = y.numel();
  each(3, [&](int i) { scale<<<(n + 255) / 256, 256>>>(y.data_ptr<float>(), n, 1.0f + i); });
  return y;
}
