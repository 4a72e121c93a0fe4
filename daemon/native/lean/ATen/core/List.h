// For lean CUDA preludes: a name for declarations.
#pragma once
namespace c10 {
template <class T>
class List;
}  // namespace c10
