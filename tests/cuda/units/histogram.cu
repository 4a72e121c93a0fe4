__global__ void histogram(const float* x, int* bins, int n, int count) {
  extern __shared__ int local[];
  for (int b = threadIdx.x; b < count; b += blockDim.x) local[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int b = min(max(static_cast<int>((x[i] + 4.0f) * 8.0f), 0), count - 1);
    atomicAdd(&local[b], 1);
  }
  __syncthreads();
  for (int b = threadIdx.x; b < count; b += blockDim.x) atomicAdd(&bins[b], local[b]);
}

torch::Tensor run(torch::Tensor x) {
  auto bins = torch::zeros({64}, x.options().dtype(torch::kInt32));
  histogram<<<32, 256, 64 * sizeof(int)>>>(x.data_ptr<float>(), bins.data_ptr<int>(), x.numel(), 64);
  return bins;
}
