// SPDX-License-Identifier: MIT
// The CPU backend's own kernels, on plain addresses. Meanings: trainer/backend/backend.h.
#pragma once

#include <cstdint>

#include "trainer/backend/backend.h"

namespace flextrain::trainer::kernels {

// elementwise.cc
void add(const float* a, const float* b, float* out, int64_t size);
void rope(float* qkv, const float* cosine, const float* sine, const AttentionShape& shape,
          bool inverse);
void swiglu_forward(const float* gate_up, float* activated, int64_t rows, int64_t width);
void swiglu_backward(const float* gate_up, const float* activated_grad, float* gate_up_grad,
                     float* activated, int64_t rows, int64_t width);

// row_kernels.cc
void rms_norm_forward(const float* x, const float* weight, float* y, float* inverse_rms,
                      int64_t rows, int64_t width, float eps);
void rms_norm_backward(const float* x, const float* weight, const float* inverse_rms,
                       const float* y_grad, float* x_grad, float* weight_grad, int64_t rows,
                       int64_t width);
void softmax_cross_entropy(float* logits, const int32_t* targets, double* row_loss, int64_t rows,
                           int64_t vocab, float grad_scale, bool want_grad);

// Row i of the [length, stride] scores holds i+1 valid entries. Replaces them by softmax(scale·row)
// and the rest of the row by 0; log_sum[i] = log Σ exp(scale·row).
void causal_softmax(float* scores, float* log_sum, int64_t length, int64_t stride, float scale);
// Replaces scores by the probabilities, given log_sum.
void causal_probabilities(float* scores, const float* log_sum, int64_t length, int64_t stride,
                          float scale);
// Replaces probability_grad by the gradient of the raw scores:
// p·(probability_grad - dot(out_grad[i], out[i]))·scale, 0 above the diagonal.
void causal_softmax_backward(const float* probabilities, float* probability_grad, const float* out,
                             const float* out_grad, int64_t out_stride, int64_t head_dim,
                             int64_t length, int64_t stride, float scale);

// optimizer_kernels.cc
// Both return the worst of 0, kFoldSaturated, kFoldNotFinite.
int64_t fold(const float* gradient, int64_t* accumulator, int64_t size, const FoldParams& params,
             bool first);
double sum_of_squares(const float* values, int64_t size);
double sum_of_squares(const int64_t* values, int64_t size, int scale);
void adamw(float* weight, float* first_moment, float* second_moment, const float* gradient,
           int64_t size, const AdamParams& params);
void adamw(float* weight, float* first_moment, float* second_moment, const int64_t* gradient,
           int64_t size, const AdamParams& params);

}  // namespace flextrain::trainer::kernels
