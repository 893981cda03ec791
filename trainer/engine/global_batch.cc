// SPDX-License-Identifier: MIT
#include "trainer/engine/global_batch.h"

#include <algorithm>

namespace flextrain::trainer {

Status GlobalBatch::load(const BatchSource& data, bool evaluation, int64_t first, int64_t count) {
  const int64_t stride = sequence_ + 1;
  tokens_.resize(static_cast<size_t>(count * stride));
  samples_ = count;
  std::fill(valid_tokens_.begin(), valid_tokens_.end(), 0);
  for (int64_t i = 0; i < count; ++i) {
    const std::span<int32_t> sample(tokens_.data() + i * stride, static_cast<size_t>(stride));
    if (evaluation)
      data.evaluation_sample(first + i, sample);
    else
      data.training_sample(first + i, sample);
    for (int64_t t = 0; t < stride; ++t) {
      if (sample[static_cast<size_t>(t)] >= vocab_)
        return invalid_argument("sample {} has token {} at position {}, but the vocabulary is {}",
                                first + i, sample[static_cast<size_t>(t)], t, vocab_);
      if (sample[static_cast<size_t>(t)] < 0) continue;
      for (size_t depth = 0; depth < valid_tokens_.size(); ++depth)
        if (t > static_cast<int64_t>(depth)) ++valid_tokens_[depth];
    }
  }
  if (valid_tokens_[0] == 0)
    return invalid_argument("samples {} … {} have no valid token to predict", first,
                            first + count - 1);
  return {};
}

void GlobalBatch::set_size(int64_t count) {
  tokens_.clear();
  samples_ = count;
  for (size_t depth = 0; depth < valid_tokens_.size(); ++depth) {
    valid_tokens_[depth] = count * std::max<int64_t>(1, sequence_ - static_cast<int64_t>(depth));
  }
}

void GlobalBatch::copy(int64_t begin, int64_t shift, std::span<int32_t> to) const {
  if (tokens_.empty()) return;
  const int64_t stride = sequence_ + 1;
  const int64_t count = static_cast<int64_t>(to.size()) / sequence_;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = std::min(begin + i, samples_ - 1);
    const int64_t there = std::max<int64_t>(std::min(sequence_, stride - shift), 0);
    int32_t* const begin_of = to.data() + i * sequence_;
    std::copy_n(tokens_.data() + sample * stride + shift, there, begin_of);
    std::fill(begin_of + there, begin_of + sequence_, -1);
  }
}

}  // namespace flextrain::trainer
