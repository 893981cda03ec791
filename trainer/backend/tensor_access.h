// SPDX-License-Identifier: MIT
// The way from a Tensor to its address. Included by Backend implementations and by nothing else.
#pragma once

#include "trainer/backend/tensor.h"

namespace flextrain::trainer {

class TensorAccess {
 public:
  static Tensor make(void* address, int64_t size, DType dtype) {
    return Tensor(address, size, dtype);
  }
  static float* f32(Tensor t) { return as<float>(t, DType::kFloat32); }
  static double* f64(Tensor t) { return as<double>(t, DType::kFloat64); }
  static int32_t* i32(Tensor t) { return as<int32_t>(t, DType::kInt32); }
  static int64_t* i64(Tensor t) { return as<int64_t>(t, DType::kInt64); }
  static void* raw(Tensor t) { return t.address_; }

 private:
  template <typename T>
  static T* as(Tensor t, [[maybe_unused]] DType expected) {
    assert(t.valid() && t.dtype() == expected);
    return static_cast<T*>(t.address_);
  }
};

}  // namespace flextrain::trainer
