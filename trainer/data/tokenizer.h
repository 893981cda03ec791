// SPDX-License-Identifier: MIT
// SentencePiece behind our Status. Thread-safe once loaded.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain::trainer {

// Trains a byte-pair model of exactly `vocab` pieces on the lines of `text` and returns it
// serialised. Byte fallback is on, so that any text can be encoded, and text is not normalised, so
// that it decodes to itself. Deterministic: equal text and vocab give equal bytes.
// kInvalidArgument when the text is too short for so many pieces.
Result<std::string> train_tokenizer(std::string_view text, int vocab);

class Tokenizer {
 public:
  // `serialized` is the content of a SentencePiece .model file; `name` is for messages.
  static Result<Tokenizer> from_bytes(std::string_view serialized, std::string_view name);

  int vocab() const;  // pieces, ids are 0 … vocab-1
  // Appends the ids of one line (without its newline).
  Status encode_line(std::string_view line, std::vector<int>& ids) const;
  // Id that ends a line or a document; -1 when the model has none.
  int newline_id() const { return newline_id_; }
  int end_of_document_id() const { return end_of_document_id_; }
  Result<std::string> decode(const std::vector<int>& ids) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
  int newline_id_ = -1, end_of_document_id_ = -1;
};

}  // namespace flextrain::trainer
