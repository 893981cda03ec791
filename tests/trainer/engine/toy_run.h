// SPDX-License-Identifier: MIT
// A tiny model, synthetic text, and the state of a whole run as bytes: shared by engine tests.
#pragma once

#include <string>
#include <vector>

#include "trainer/engine/engine.h"

namespace flextrain::trainer {

// hidden 32, 4 query and 2 key/value heads, sequence 16, vocabulary 64.
TrainConfig toy_config(int layers, int global_batch);

// Text whose next token mostly follows from the last: (5·token + 3) mod vocab, an eighth of them
// random. With `padding`, samples end early by different amounts.
class ToyText final : public BatchSource {
 public:
  ToyText(int vocab, bool padding) : vocab_(vocab), padding_(padding) {}
  void training_sample(int64_t sample, std::span<int32_t> tokens) const override {
    fill(static_cast<uint64_t>(sample), tokens);
  }
  void evaluation_sample(int64_t sample, std::span<int32_t> tokens) const override {
    fill(static_cast<uint64_t>(sample) + (uint64_t{1} << 40), tokens);
  }

 private:
  void fill(uint64_t key, std::span<int32_t> tokens) const;
  int vocab_;
  bool padding_;
};

// All layers' tensors, gathered on rank 0 in layer order (empty elsewhere). Collective.
Result<std::string> gather_state(const Engine& engine, const TrainConfig& config,
                                 Communicator& world);
// The inverse: every rank imports the layers it holds from rank 0's bytes. Collective.
Status scatter_state(Engine& engine, std::string bytes, Communicator& world);
// 64-bit FNV-1a, for comparing states in a line of text.
uint64_t fingerprint_bytes(const std::string& bytes);

}  // namespace flextrain::trainer
