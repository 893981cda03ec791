// SPDX-License-Identifier: MIT
#include "trainer/backend/cpu/attention.h"

#include <cmath>

#include "trainer/backend/cpu/kernels.h"
#include "trainer/backend/cpu/lanes.h"

namespace flextrain::trainer {
namespace {

int64_t score_stride(int64_t length) { return (length + kLanes - 1) / kLanes * kLanes; }

// The products of one head. q, k, v rows lie `w` apart inside the packed projection, out rows `o`.
struct HeadShapes {
  MatmulShape scores;            // q·kᵀ, and out_grad·vᵀ with its own stride
  MatmulShape probability_grad;  // out_grad·vᵀ
  MatmulShape out;               // p·v
  MatmulShape query_grad;        // ds·k
  MatmulShape key_grad;          // dsᵀ·q, = or +=
  MatmulShape value_grad;        // pᵀ·out_grad, = or +=
};

HeadShapes head_shapes(const AttentionShape& shape, bool accumulate) {
  const int64_t t = shape.length, d = shape.head_dim, s = score_stride(t);
  const int64_t w = shape.qkv_width(), o = shape.out_width();
  HeadShapes shapes;
  shapes.scores = {t, t, d, w, 1, 1, w, s, false};
  shapes.probability_grad = {t, t, d, o, 1, 1, w, s, false};
  shapes.out = {t, d, t, s, 1, w, 1, o, false};
  shapes.query_grad = {t, d, t, s, 1, w, 1, w, false};
  shapes.key_grad = {t, d, t, 1, s, w, 1, w, accumulate};
  shapes.value_grad = {t, d, t, 1, s, o, 1, w, accumulate};
  return shapes;
}

// Offsets of query head `head` and of the key and value head it uses, in a row.
struct HeadOffsets {
  int64_t query, key, value;
  bool first_of_group;
};
HeadOffsets head_offsets(const AttentionShape& shape, int64_t head) {
  const int64_t group = shape.heads / shape.kv_heads, kv = head / group;
  return {head * shape.head_dim, (shape.heads + kv) * shape.head_dim,
          (shape.heads + shape.kv_heads + kv) * shape.head_dim, head % group == 0};
}

}  // namespace

Status CpuAttention::reserve(int64_t length) {
  if (length <= reserved_length_) return {};
  const int64_t bytes = length * score_stride(length) * static_cast<int64_t>(sizeof(float));
  scores_ = static_cast<float*>(arena_.allocate(bytes));
  score_grads_ = static_cast<float*>(arena_.allocate(bytes));
  if (scores_ == nullptr || score_grads_ == nullptr)
    return resource_exhausted("no memory for attention scores of {} tokens", length);
  reserved_length_ = length;
  return {};
}

Status CpuAttention::forward(const float* qkv, float* out, float* log_sum,
                             const AttentionShape& shape) {
  RETURN_IF_ERROR(reserve(shape.length));
  const HeadShapes shapes = head_shapes(shape, false);
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  const int64_t stride = score_stride(shape.length);
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const float* rows = qkv + sequence * shape.length * shape.qkv_width();
    float* out_rows = out + sequence * shape.length * shape.out_width();
    for (int64_t head = 0; head < shape.heads; ++head) {
      const HeadOffsets at = head_offsets(shape, head);
      float* sums = log_sum + (sequence * shape.heads + head) * shape.length;
      RETURN_IF_ERROR(matmul_.run(shapes.scores, rows + at.query, rows + at.key, scores_));
      kernels::causal_softmax(scores_, sums, shape.length, stride, scale);
      RETURN_IF_ERROR(
          matmul_.run(shapes.out, scores_, rows + at.value, out_rows + head * shape.head_dim));
    }
  }
  return {};
}

Status CpuAttention::backward(const float* qkv, const float* out, const float* log_sum,
                              const float* out_grad, float* qkv_grad, const AttentionShape& shape) {
  RETURN_IF_ERROR(reserve(shape.length));
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  const int64_t stride = score_stride(shape.length);
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const int64_t row = sequence * shape.length;
    const float* rows = qkv + row * shape.qkv_width();
    float* grads = qkv_grad + row * shape.qkv_width();
    for (int64_t head = 0; head < shape.heads; ++head) {
      const HeadOffsets at = head_offsets(shape, head);
      const HeadShapes shapes = head_shapes(shape, !at.first_of_group);
      const float* sums = log_sum + (sequence * shape.heads + head) * shape.length;
      const float* out_head = out + row * shape.out_width() + head * shape.head_dim;
      const float* grad_head = out_grad + row * shape.out_width() + head * shape.head_dim;
      RETURN_IF_ERROR(matmul_.run(shapes.scores, rows + at.query, rows + at.key, scores_));
      kernels::causal_probabilities(scores_, sums, shape.length, stride, scale);
      RETURN_IF_ERROR(matmul_.run(shapes.value_grad, scores_, grad_head, grads + at.value));
      RETURN_IF_ERROR(
          matmul_.run(shapes.probability_grad, grad_head, rows + at.value, score_grads_));
      kernels::causal_softmax_backward(scores_, score_grads_, out_head, grad_head,
                                       shape.out_width(), shape.head_dim, shape.length, stride,
                                       scale);
      RETURN_IF_ERROR(
          matmul_.run(shapes.query_grad, score_grads_, rows + at.key, grads + at.query));
      RETURN_IF_ERROR(matmul_.run(shapes.key_grad, score_grads_, rows + at.query, grads + at.key));
    }
  }
  return {};
}

}  // namespace flextrain::trainer
