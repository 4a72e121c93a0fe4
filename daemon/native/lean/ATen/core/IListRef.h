// For lean CUDA preludes: a list of tensors as a parameter takes what the real one takes, and does nothing else.
#pragma once
#include <c10/util/ArrayRef.h>
#include <initializer_list>
#include <type_traits>
namespace at {
class OptionalTensorRef;
class Tensor;
}  // namespace at
namespace c10 {
template <class T>
class IListRef {
 public:
  template <class... A, class = std::enable_if_t<std::is_constructible_v<ArrayRef<T>, A...>>>
  IListRef(A&&... a);
  IListRef(const std::initializer_list<T>& list);
};
}  // namespace c10
namespace at {
using ITensorListRef = c10::IListRef<at::Tensor>;
using IOptTensorListRef = c10::IListRef<at::OptionalTensorRef>;
}  // namespace at
