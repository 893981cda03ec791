// SPDX-License-Identifier: MIT
// A handle to memory of a Backend. Copyable and cheap; owns nothing; valid as long as its Backend.
// What the memory is (host, device) is the Backend's secret.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace flextrain::trainer {

enum class DType { kFloat32, kFloat64, kInt32, kInt64 };
inline int64_t dtype_bytes(DType type) {
  return type == DType::kFloat32 || type == DType::kInt32 ? 4 : 8;
}

class Tensor {
 public:
  Tensor() = default;
  DType dtype() const { return dtype_; }
  int64_t size() const { return size_; }  // elements
  bool valid() const { return address_ != nullptr; }
  // Elements [offset, offset + count) of this tensor.
  Tensor slice(int64_t offset, int64_t count) const {
    assert(offset >= 0 && count >= 0 && offset + count <= size_);
    return Tensor(static_cast<char*>(address_) + offset * dtype_bytes(dtype_), count, dtype_);
  }

 private:
  friend class TensorAccess;  // for Backend implementations only
  Tensor(void* address, int64_t size, DType dtype)
      : address_(address), size_(size), dtype_(dtype) {}
  void* address_ = nullptr;
  int64_t size_ = 0;
  DType dtype_ = DType::kFloat32;
};

}  // namespace flextrain::trainer
