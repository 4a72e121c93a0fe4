template <typename T>
__global__ void twice(const T* x, T* y, int64_t n) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    y[i] = x[i] + x[i];
}

torch::Tensor run(torch::Tensor x) {
  auto y = at::empty(x.sizes(), x.options());
  AT_DISPATCH_ALL_TYPES(x.scalar_type(), "twice", [&] {
    twice<scalar_t><<<128, 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  return y;
}
