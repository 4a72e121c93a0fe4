#include <cuda_fp8.h>

__global__ void quantize(const float* x, __nv_fp8_e4m3* q, float* back, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    q[i] = __nv_fp8_e4m3(x[i]);
    back[i] = static_cast<float>(q[i]);
  }
}

torch::Tensor run(torch::Tensor x) {
  auto q = torch::empty({x.numel()}, x.options().dtype(torch::kUInt8));
  auto back = torch::empty_like(x);
  const int n = x.numel();
  quantize<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), reinterpret_cast<__nv_fp8_e4m3*>(q.data_ptr<uint8_t>()),
                                     back.data_ptr<float>(), n);
  return back;
}
