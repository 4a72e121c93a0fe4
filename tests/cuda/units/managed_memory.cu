__managed__ float offset = 0.0f;

__global__ void shift(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + offset;
}

torch::Tensor run(torch::Tensor x) {
  offset = 2.5f;
  auto y = torch::empty_like(x);
  const int n = x.numel();
  shift<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  cudaDeviceSynchronize();
  return y;
}
