// SPDX-License-Identifier: MIT
// The token stream cut into windows of sequence+1 tokens (neighbours share one token: the last
// target of one is the first input of the next). The last windows are held out for evaluation.
// Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "trainer/config/train_config.h"
#include "trainer/data/token_file.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

class Dataset : public BatchSource {
 public:
  // kInvalidArgument when the text is too short for one training window, or for one held-out window
  // where eval_fraction asks for some.
  static Result<Dataset> create(TokenFile tokens, const TrainConfig& config);

  // Sample numbers run over the whole training; see sampler.h.
  void training_sample(int64_t sample, std::span<int32_t> tokens) const override;
  // Held-out windows in text order, starting over after the last.
  void evaluation_sample(int64_t sample, std::span<int32_t> tokens) const override;

  int64_t training_windows() const { return training_windows_; }
  int64_t evaluation_windows() const { return evaluation_windows_; }

 private:
  Dataset(TokenFile tokens, uint64_t seed, int sequence, int64_t training, int64_t evaluation)
      : tokens_(std::move(tokens)),
        seed_(seed),
        sequence_(sequence),
        training_windows_(training),
        evaluation_windows_(evaluation) {}
  void read_window(int64_t window, std::span<int32_t> tokens) const;

  TokenFile tokens_;
  uint64_t seed_ = 0;
  int sequence_ = 0;
  int64_t training_windows_ = 0, evaluation_windows_ = 0;
};

}  // namespace flextrain::trainer
