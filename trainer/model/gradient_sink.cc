// SPDX-License-Identifier: MIT
#include "trainer/model/gradient_sink.h"

namespace flextrain::trainer {

void GradientSink::linear(Tensor y_grad, Tensor x, Tensor accumulator, const LinearShape& shape,
                          bool first) {
  if (!exact_) {
    backend_.linear_backward_weight(y_grad, x, accumulator, shape, !first);
    return;
  }
  const Tensor scratch = scratch_.slice(0, shape.in * shape.out);
  backend_.linear_backward_weight(y_grad, x, scratch, shape, false);
  backend_.fold(scratch, accumulator, params_, first, status_);
}

void GradientSink::rms_norm(Tensor x, Tensor weight, Tensor inverse_rms, Tensor y_grad,
                            Tensor x_grad, Tensor accumulator, bool first) {
  const int64_t width = weight.size();
  if (!exact_) {
    backend_.rms_norm_backward(x, weight, inverse_rms, y_grad, x_grad, accumulator, width, !first);
    return;
  }
  const Tensor scratch = scratch_.slice(0, width);
  backend_.rms_norm_backward(x, weight, inverse_rms, y_grad, x_grad, scratch, width, false);
  backend_.fold(scratch, accumulator, params_, first, status_);
}

void GradientSink::embedding(Tensor tokens, Tensor out_grad, Tensor accumulator, int64_t width) {
  if (exact_)
    backend_.embedding_fold(tokens, out_grad, accumulator, width, params_, status_);
  else
    backend_.embedding_backward(tokens, out_grad, accumulator, width);
}

}  // namespace flextrain::trainer
