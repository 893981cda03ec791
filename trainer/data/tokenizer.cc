// SPDX-License-Identifier: MIT
#include "trainer/data/tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <unordered_map>

namespace flextrain::trainer {
namespace {

// Training on more lines than this gains little and costs memory; the first ones are taken, so that
// the result stays deterministic.
constexpr const char* kMaxTrainingLines = "2000000";
constexpr size_t kMaxLineBytes = 1'000'000;  // SentencePiece passes longer ones over

class LineIterator : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(std::string_view text) : rest_(text) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    do {
      if (rest_.empty()) {
        done_ = true;
        return;
      }
      const size_t end = rest_.find('\n');
      line_.assign(rest_.substr(0, end));
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    } while (line_.empty());
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::string_view rest_;
  std::string line_;
  bool done_ = false;
};

// Does any line have few enough bytes to be trained on?
bool any_line_fits(std::string_view text) {
  for (LineIterator lines(text); !lines.done(); lines.Next()) {
    if (lines.value().size() <= kMaxLineBytes) return true;
  }
  return false;
}

}  // namespace

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

Result<std::string> train_tokenizer(std::string_view text, int vocab) {
  LineIterator lines(text);
  if (lines.done()) return invalid_argument("the text is empty");
  if (!any_line_fits(text)) {
    return invalid_argument(
        "every line is longer than {} bytes, no tokeniser can be trained on such; break them into "
        "lines",
        kMaxLineBytes);
  }
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocab)},
      {"character_coverage", "1.0"},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"num_threads", "1"},
      {"input_sentence_size", kMaxTrainingLines},
      {"shuffle_input_sentence", "false"},
      {"max_sentence_length", std::to_string(kMaxLineBytes)},
      {"minloglevel", "2"},
  };
  std::string model;
  try {
    const auto status = sentencepiece::SentencePieceTrainer::Train(options, &lines, &model);
    if (!status.ok()) {
      return invalid_argument(
          "cannot train a tokeniser of {} pieces on {} bytes of text (give more text or a smaller "
          "data.tokenizer_vocab): {}",
          vocab, text.size(), status.ToString());
    }
  } catch (const std::exception& error) {
    return internal_error("SentencePiece failed while training: {}", error.what());
  }
  return model;
}

Result<Tokenizer> Tokenizer::from_bytes(std::string_view serialized, std::string_view name) {
  auto impl = std::make_shared<Impl>();
  const auto status = impl->processor.LoadFromSerializedProto(serialized);
  if (!status.ok() || serialized.empty()) {
    return invalid_argument("'{}' is not a SentencePiece model: {}", name, status.ToString());
  }
  Tokenizer tokenizer;
  const auto& processor = impl->processor;
  const int newline = processor.PieceToId("<0x0A>");
  if (newline >= 0 && !processor.IsUnknown(newline)) tokenizer.newline_id_ = newline;
  tokenizer.end_of_document_id_ = processor.eos_id();
  tokenizer.impl_ = std::move(impl);
  return tokenizer;
}

int Tokenizer::vocab() const { return impl_->processor.GetPieceSize(); }

Status Tokenizer::encode_line(std::string_view line, std::vector<int>& ids) const {
  if (line.empty()) return {};
  std::vector<int> pieces;
  const auto status = impl_->processor.Encode(line, &pieces);
  if (!status.ok()) return internal_error("cannot tokenise a line: {}", status.ToString());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  return {};
}

Result<std::string> Tokenizer::decode(const std::vector<int>& ids) const {
  std::string text;
  const auto status = impl_->processor.Decode(ids, &text);
  if (!status.ok()) return invalid_argument("cannot decode tokens: {}", status.ToString());
  return text;
}

}  // namespace flextrain::trainer
