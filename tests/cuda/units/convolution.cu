__constant__ float filter[5];

__global__ void convolve(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float tile[256 + 4];
  int i = blockIdx.x * 256 + threadIdx.x;
  tile[threadIdx.x + 2] = i < n ? x[i] : 0.0f;
  if (threadIdx.x < 2) tile[threadIdx.x] = i >= 2 ? x[i - 2] : 0.0f;
  if (threadIdx.x >= 254) tile[threadIdx.x + 4] = i + 2 < n ? x[i + 2] : 0.0f;
  __syncthreads();
  if (i >= n) return;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 5; ++k) sum += filter[k] * tile[threadIdx.x + k];
  y[i] = sum;
}

torch::Tensor run(torch::Tensor x) {
  const float host[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
  cudaMemcpyToSymbol(filter, host, sizeof(host));
  auto y = torch::empty_like(x);
  const int n = x.numel();
  convolve<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
