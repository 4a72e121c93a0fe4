// For lean CUDA preludes.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
namespace at {
inline std::optional<Device> device_of(const Tensor& t);
inline std::optional<Device> device_of(const std::optional<Tensor>& t);
}  // namespace at
