// SPDX-License-Identifier: MIT
// The tokens of one global batch. Every rank reads all of it: it is small, and the loss denominator
// (the count of valid targets) must be known everywhere before the backward pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

class GlobalBatch {
 public:
  explicit GlobalBatch(const ModelConfig& model)
      : sequence_(model.sequence),
        vocab_(model.vocab),
        valid_tokens_(static_cast<size_t>(model.mtp_num_layers) + 1) {}

  // Reads samples [first, first + count). A negative token is padding: no input, no target. Any
  // other token outside the vocabulary is kInvalidArgument, on every rank alike.
  Status load(const BatchSource& data, bool evaluation, int64_t first, int64_t count);
  // Without tokens, for a device that computes nothing: all valid, copies are left as they are.
  void set_size(int64_t count);
  int64_t samples() const { return samples_; }
  // Targets that exist; those of MTP depth d lie d further ahead, beyond the sample there are none.
  int64_t valid_tokens(int depth = 0) const { return valid_tokens_[static_cast<size_t>(depth)]; }
  // Inputs and targets of samples [begin, begin + count) of the batch, count·sequence each, `depth`
  // tokens further ahead (-1 beyond the sample); samples beyond the last repeat it (an evaluation
  // need not fill its last micro-batch).
  void copy_inputs(int64_t begin, std::span<int32_t> to, int depth = 0) const {
    copy(begin, depth, to);
  }
  void copy_targets(int64_t begin, std::span<int32_t> to, int depth = 0) const {
    copy(begin, 1 + depth, to);
  }

 private:
  void copy(int64_t begin, int64_t shift, std::span<int32_t> to) const;
  int64_t sequence_, vocab_;
  int64_t samples_ = 0;
  std::vector<int64_t> valid_tokens_;  // per depth
  std::vector<int32_t> tokens_;        // [samples, sequence + 1]
};

}  // namespace flextrain::trainer
