// SPDX-License-Identifier: MIT
#include "trainer/engine/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

// long double throughout: x87 code has no variants per machine, double's pow and cos have.
namespace flextrain::trainer {

double learning_rate_at(const TrainConfig& config, int64_t consumed) {
  const OptimizerConfig& o = config.optimizer;
  const int64_t done = consumed + config.global_batch;
  if (done < o.warmup_samples)
    return o.learning_rate * static_cast<double>(done) / static_cast<double>(o.warmup_samples);
  const int64_t total = config.steps * config.global_batch;
  const int64_t decay_samples = std::max<int64_t>(1, total - o.warmup_samples);
  const long double progress =
      std::min(1.0L, static_cast<long double>(done - o.warmup_samples) / decay_samples);
  const long double share = 0.5L * (1.0L + std::cos(std::numbers::pi_v<long double> * progress));
  return static_cast<double>(o.min_learning_rate + (o.learning_rate - o.min_learning_rate) * share);
}

AdamParams adam_params_at(const TrainConfig& config, int64_t consumed) {
  const OptimizerConfig& o = config.optimizer;
  const int64_t step = consumed / config.global_batch + 1;
  const auto correction = [&](double beta) {
    return static_cast<float>(
        1.0L / (1.0L - std::pow(static_cast<long double>(beta), static_cast<long double>(step))));
  };
  AdamParams params;
  params.learning_rate = static_cast<float>(learning_rate_at(config, consumed));
  params.beta1 = static_cast<float>(o.beta1);
  params.beta2 = static_cast<float>(o.beta2);
  params.eps = static_cast<float>(o.eps);
  params.correction1 = correction(o.beta1);
  params.correction2 = correction(o.beta2);
  return params;
}

}  // namespace flextrain::trainer
