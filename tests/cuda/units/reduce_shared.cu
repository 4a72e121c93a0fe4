template <int THREADS>
__global__ void partial(const float* x, float* sums, int n) {
  __shared__ float shared[THREADS];
  float sum = 0.0f;
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) sum += x[i];
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int s = THREADS / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) shared[threadIdx.x] += shared[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}

torch::Tensor run(torch::Tensor x) {
  auto sums = torch::empty({64}, x.options());
  partial<256><<<64, 256>>>(x.data_ptr<float>(), sums.data_ptr<float>(), x.numel());
  return sums.sum();
}
