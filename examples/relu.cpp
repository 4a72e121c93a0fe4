at::Tensor relu(at::Tensor x) { return at::clamp_min(x, 0); }
