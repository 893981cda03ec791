// SPDX-License-Identifier: MIT
// Causal grouped-query attention from strided matrix products and row kernels, head by head: the
// score matrix exists once, as scratch, and backward makes it again from log_sum.
#pragma once

#include "trainer/backend/backend.h"
#include "trainer/backend/cpu/arena.h"
#include "trainer/backend/cpu/matmul.h"

namespace flextrain::trainer {

class CpuAttention {
 public:
  CpuAttention(Matmul& matmul, Arena& arena) : matmul_(matmul), arena_(arena) {}
  Status forward(const float* qkv, float* out, float* log_sum, const AttentionShape& shape);
  Status backward(const float* qkv, const float* out, const float* log_sum, const float* out_grad,
                  float* qkv_grad, const AttentionShape& shape);

 private:
  Status reserve(int64_t length);  // scratch for two [length, stride] matrices
  Matmul& matmul_;
  Arena& arena_;
  int64_t reserved_length_ = 0;
  float* scores_ = nullptr;
  float* score_grads_ = nullptr;
};

}  // namespace flextrain::trainer
