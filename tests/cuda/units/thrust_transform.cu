#include <thrust/device_ptr.h>
#include <thrust/transform.h>
#include <thrust/execution_policy.h>

struct Scale {
  float factor;
  __host__ __device__ float operator()(float v) const { return v * factor; }
};

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  thrust::device_ptr<float> in(x.data_ptr<float>()), out(y.data_ptr<float>());
  thrust::transform(thrust::device, in, in + x.numel(), out, Scale{3.0f});
  return y;
}
