// SPDX-License-Identifier: MIT
// Where a layer's weight gradients go. `exact`: each micro-batch's gradient is made in scratch and
// folded into int64 fixed point, whose sum does not depend on the order. `fp32`: added in place.
#pragma once

#include "planner/plan.h"
#include "trainer/backend/backend.h"

namespace flextrain::trainer {

class GradientSink {
 public:
  // `scratch` holds the largest single gradient (float32); `status` is one int64. Both may be
  // invalid for fp32.
  GradientSink(Backend& backend, planner::Numerics numerics, Tensor scratch, Tensor status)
      : backend_(backend),
        exact_(numerics == planner::Numerics::kExact),
        scratch_(scratch),
        status_(status) {}

  void set_fold(const FoldParams& params) { params_ = params; }

  // Each takes the layer's accumulator slice; `first` overwrites what is there.
  void linear(Tensor y_grad, Tensor x, Tensor accumulator, const LinearShape& shape, bool first);
  void rms_norm(Tensor x, Tensor weight, Tensor inverse_rms, Tensor y_grad, Tensor x_grad,
                Tensor accumulator, bool first);
  // Always adds: only the rows of `tokens` are touched.
  void embedding(Tensor tokens, Tensor out_grad, Tensor accumulator, int64_t width);

 private:
  Backend& backend_;
  bool exact_;
  Tensor scratch_, status_;
  FoldParams params_;
};

}  // namespace flextrain::trainer
