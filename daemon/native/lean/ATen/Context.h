// For lean CUDA preludes: what a kernel's host code says of the context, without the hooks of every kind of device.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/ScalarType.h>
namespace at {
class Context;
Context& globalContext();
}  // namespace at
