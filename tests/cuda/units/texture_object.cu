__global__ void sample(cudaTextureObject_t texture, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = tex1Dfetch<float>(texture, i) * 2.0f;
}

torch::Tensor run(torch::Tensor x) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = x.data_ptr();
  resource.res.linear.desc = cudaCreateChannelDesc<float>();
  resource.res.linear.sizeInBytes = x.nbytes();
  cudaTextureDesc description = {};
  description.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  cudaCreateTextureObject(&texture, &resource, &description, nullptr);
  auto y = torch::empty_like(x);
  const int n = x.numel();
  sample<<<(n + 255) / 256, 256>>>(texture, y.data_ptr<float>(), n);
  cudaDestroyTextureObject(texture);
  return y;
}
