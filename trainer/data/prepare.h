// SPDX-License-Identifier: MIT
// Makes tokeniser and token file from a text, once: under a lock, into temporary files, renamed
// into place. Several processes may race for it; the losers find it done. A side file PREFIX.json
// holds hashes of text and tokeniser, so that a changed text is noticed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

struct PreparedData {
  std::string token_prefix;
  int64_t tokens = 0;
  int64_t largest_token = 0;  // biggest id that occurs
  int tokenizer_vocab = 0;    // 0 when there is no tokeniser (a user's own token file)
  std::string hash;           // names the token stream's source in the checkpoint's manifest
  bool built = false;         // this call did the work
};

// With data.text: tokeniser (data.tokenizer, default OUTPUT/tokenizer.model; trained when missing)
// and token file (data.tokens, default OUTPUT/tokens.{bin,idx}) are made when missing or stale.
// With data.tokens alone: the files are the user's; they are checked, and the result of the scan is
// kept beside them where the folder can be written.
// Errors: kNotFound, kInvalidArgument, kDataLoss for text and files that cannot be used; never
// overwrites token files that it did not make (kAlreadyExists).
// Another process that prepares the same files is waited for, no longer than until `give_up` says
// so (kAborted).
Result<PreparedData> prepare_data(const TrainConfig& config,
                                  const std::function<bool()>& give_up = {});

// After the token file has been opened: is it still the one of `hash`? kUnavailable when another
// run, with another text, replaced it in between.
Status check_still_prepared(const TrainConfig& config, const std::string& hash);

// model.vocab for this data: the configured value (checked against the largest token) or the
// tokeniser's size.
Result<int> vocab_for(const TrainConfig& config, const PreparedData& data);

}  // namespace flextrain::trainer
