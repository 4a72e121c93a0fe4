__global__ void kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 v = reinterpret_cast<const float4*>(x)[i]; v.x += 1; v.y += 2; v.z += 3; v.w += 4; reinterpret_cast<float4*>(y)[i] = v; }
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int n = x.numel() / 4;
  kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
