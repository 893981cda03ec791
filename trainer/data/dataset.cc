// SPDX-License-Identifier: MIT
#include "trainer/data/dataset.h"

#include <algorithm>
#include <cmath>

#include "trainer/data/sampler.h"

namespace flextrain::trainer {

Result<Dataset> Dataset::create(TokenFile tokens, const TrainConfig& config) {
  const int64_t sequence = config.model.sequence;
  const int64_t windows = tokens.tokens() > 0 ? (tokens.tokens() - 1) / sequence : 0;
  int64_t held_out = 0;
  if (config.eval_fraction > 0) {
    held_out = std::max<int64_t>(
        1, static_cast<int64_t>(std::floor(config.eval_fraction * static_cast<double>(windows))));
  }
  if (windows - held_out < 1) {
    return invalid_argument(
        "the data is too short: {} tokens make {} sequences of model.sequence = {}, {} of them "
        "held "
        "out (data.eval_fraction = {}); at least one must remain for training",
        tokens.tokens(), windows, sequence, held_out, config.eval_fraction);
  }
  return Dataset(std::move(tokens), config.seed, config.model.sequence, windows - held_out,
                 held_out);
}

void Dataset::read_window(int64_t window, std::span<int32_t> tokens) const {
  const size_t wanted = std::min(tokens.size(), static_cast<size_t>(sequence_) + 1);
  tokens_.read(window * sequence_, tokens.first(wanted));
}

void Dataset::training_sample(int64_t sample, std::span<int32_t> tokens) const {
  read_window(window_of_sample(seed_, sample, training_windows_), tokens);
}

void Dataset::evaluation_sample(int64_t sample, std::span<int32_t> tokens) const {
  if (evaluation_windows_ == 0) return read_window(0, tokens);
  read_window(training_windows_ + sample % evaluation_windows_, tokens);
}

}  // namespace flextrain::trainer
