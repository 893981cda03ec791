// SPDX-License-Identifier: MIT
// The learning rate and Adam's bias corrections as pure functions of consumed samples, so that a
// change of layout in the middle of a run cannot move them.
#pragma once

#include <cstdint>

#include "trainer/backend/backend.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

// Of the step that starts after `consumed` samples: linear warm-up to learning_rate over
// warmup_samples, then half a cosine down to min_learning_rate at steps·global_batch samples
// (Loshchilov and Hutter 2017).
double learning_rate_at(const TrainConfig& config, int64_t consumed);

// Everything of AdamParams except weight_decay and grad_scale.
AdamParams adam_params_at(const TrainConfig& config, int64_t consumed);

}  // namespace flextrain::trainer
