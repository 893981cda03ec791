// SPDX-License-Identifier: MIT
#include "trainer/data/prepare.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "trainer/data/mapped_file.h"
#include "trainer/data/token_file.h"
#include "trainer/data/tokenizer.h"

namespace flextrain::trainer {
namespace {

constexpr int kSideVersion = 1;
// Another run may be tokenising a huge text.
constexpr std::chrono::hours kLockPatience{2};
// Documents longer than this are cut into several index entries; the stream stays the same.
constexpr size_t kMaxDocumentTokens = size_t{1} << 24;

std::string hash_hex(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

struct Paths {
  std::string prefix, tokenizer, side, lock;
};

Paths paths_of(const TrainConfig& config) {
  Paths paths;
  paths.prefix = config.tokens_path.empty() ? config.output_dir + "/tokens"
                                            : token_file_prefix(config.tokens_path);
  paths.tokenizer = config.tokenizer_path.empty() ? config.output_dir + "/tokenizer.model"
                                                  : config.tokenizer_path;
  paths.side = paths.prefix + ".json";
  paths.lock = paths.prefix + ".lock";
  return paths;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

PreparedData from_side(const Paths& paths, const Json& side) {
  PreparedData data;
  data.token_prefix = paths.prefix;
  data.tokens = side.value("tokens", int64_t{0});
  data.largest_token = side.value("largest_token", int64_t{-1});
  data.tokenizer_vocab = side.value("tokenizer_vocab", 0);
  data.hash = side.value("hash", std::string());
  return data;
}

// The side file, or an empty object when there is none or it cannot be used (then it is made anew).
Json read_side(const Paths& paths) {
  const Result<std::string> text = read_file(paths.side, 1 << 20);
  if (!text.ok()) return Json::object();
  const Result<Json> json = parse_json(*text, paths.side);
  if (!json.ok() || !json->is_object()) return Json::object();
  // Every field is read once here, so that later reads cannot throw.
  const Result<bool> usable = decode_json(paths.side, [&] {
    from_side(paths, *json);
    (void)json->value("building", false);
    (void)json->value("text_hash", std::string());
    return json->value("version", 0) == kSideVersion;
  });
  return usable.value_or(false) ? *json : Json::object();
}

Status write_side(const std::string& path, const Json& json) {
  return write_file_atomically(path, json.dump(2) + "\n");
}

// Encodes the documents of `text` (blocks between blank lines) into `writer`.
Result<int64_t> encode_text(std::string_view text, const Tokenizer& tokenizer,
                            TokenFileWriter& writer) {
  std::vector<int> ids;
  int64_t largest = -1;
  const auto end_document = [&](bool complete) -> Status {
    if (ids.empty()) return {};
    if (complete && tokenizer.end_of_document_id() >= 0) {
      ids.push_back(tokenizer.end_of_document_id());
    }
    for (const int id : ids) largest = std::max<int64_t>(largest, id);
    RETURN_IF_ERROR(writer.add_document(ids));
    ids.clear();
    return {};
  };
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (trim(line).empty()) {
      RETURN_IF_ERROR(end_document(true));
      continue;
    }
    RETURN_IF_ERROR(tokenizer.encode_line(line, ids));
    if (tokenizer.newline_id() >= 0) ids.push_back(tokenizer.newline_id());
    if (ids.size() >= kMaxDocumentTokens) RETURN_IF_ERROR(end_document(false));
  }
  RETURN_IF_ERROR(end_document(true));
  return largest;
}

// The side file describes exactly these inputs, and the files it describes are there and whole.
bool is_fresh(const Paths& paths, const Json& side, const std::string& hash) {
  if (side.value("building", true) || side.value("hash", std::string()) != hash) return false;
  const Result<TokenFile> file = TokenFile::open(paths.prefix);
  return file.ok() && file->tokens() == side.value("tokens", int64_t{-1});
}

Result<std::string> tokenizer_bytes(const TrainConfig& config, const Paths& paths,
                                    std::string_view text) {
  Result<std::string> model = read_file(paths.tokenizer);
  if (model.ok() || model.status().code() != StatusCode::kNotFound) return model;
  log_info("training a tokeniser of {} pieces on '{}'", config.tokenizer_vocab, config.text_path);
  Result<std::string> trained = train_tokenizer(text, config.tokenizer_vocab);
  if (!trained.ok()) {
    return trained.status().with_context(fmt::format("data.text '{}'", config.text_path));
  }
  RETURN_IF_ERROR(make_directories(parent_of(paths.tokenizer)));
  RETURN_IF_ERROR(write_file_atomically(paths.tokenizer, *trained));
  return trained;
}

Result<PreparedData> prepare_from_text(const TrainConfig& config, const Paths& paths,
                                       const std::function<bool()>& give_up) {
  RETURN_IF_ERROR(make_directories(parent_of(paths.prefix)));
  ASSIGN_OR_RETURN(const FileLock lock, FileLock::acquire(paths.lock, kLockPatience, give_up));
  ASSIGN_OR_RETURN(const MappedFile text_file, MappedFile::open(config.text_path));
  const std::string_view text = text_of(text_file);
  const Json side = read_side(paths);
  ASSIGN_OR_RETURN(const std::string model, tokenizer_bytes(config, paths, text));
  const std::string tokenizer_hash = hash_hex(model.data(), model.size());
  // Hashing a huge text at every start is slow: same size and time mean the same text.
  const Json stamp = {text.size(), text_file.modified_ns(), config.text_path};
  const std::string text_hash = side.value("text_stamp", Json()) == stamp
                                    ? side.value("text_hash", std::string())
                                    : hash_hex(text.data(), text.size());
  const std::string hash = text_hash + "-" + tokenizer_hash;
  if (is_fresh(paths, side, hash)) return from_side(paths, side);

  if (side.empty() && exists(paths.prefix + ".bin")) {
    return already_exists(
        "'{}.bin' exists but was not made from data.text by flextrain ('{}' is missing); remove "
        "data.text to train on it, or set data.tokens to another path",
        paths.prefix, paths.side);
  }
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::from_bytes(model, paths.tokenizer));
  log_info("tokenising '{}' into '{}.bin'{}", config.text_path, paths.prefix,
           side.empty() || side.value("building", false) ? "" : ": text or tokeniser has changed");
  RETURN_IF_ERROR(write_side(paths.side, {{"version", kSideVersion}, {"building", true}}));
  ASSIGN_OR_RETURN(TokenFileWriter writer,
                   TokenFileWriter::create(paths.prefix, "tmp", tokenizer.vocab()));
  ASSIGN_OR_RETURN(const int64_t largest, encode_text(text, tokenizer, writer));
  if (writer.tokens() == 0) return invalid_argument("'{}' holds no text", config.text_path);
  RETURN_IF_ERROR(writer.finish());
  const Json fresh = {{"version", kSideVersion},
                      {"building", false},
                      {"hash", hash},
                      {"text_hash", text_hash},
                      {"text_stamp", stamp},
                      {"tokens", writer.tokens()},
                      {"largest_token", largest},
                      {"tokenizer_vocab", tokenizer.vocab()}};
  RETURN_IF_ERROR(write_side(paths.side, fresh));
  PreparedData data = from_side(paths, fresh);
  data.built = true;
  return data;
}

Result<PreparedData> prepare_own_tokens(const TrainConfig& config, const Paths& paths) {
  ASSIGN_OR_RETURN(const TokenFile file, TokenFile::open(paths.prefix));
  int vocab = 0;
  if (!config.tokenizer_path.empty()) {
    ASSIGN_OR_RETURN(const std::string model, read_file(paths.tokenizer));
    ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::from_bytes(model, paths.tokenizer));
    vocab = tokenizer.vocab();
  }
  const Json stamp = {file.bin().bytes().size(), file.bin().modified_ns()};
  const Json side = read_side(paths);
  if (!side.value("building", true) && side.value("bin_stamp", Json()) == stamp) {
    PreparedData data = from_side(paths, side);
    if (vocab > 0) data.tokenizer_vocab = vocab;
    return data;
  }
  ASSIGN_OR_RETURN(const int64_t largest, file.largest_token());
  const Json fresh = {{"version", kSideVersion},
                      {"building", false},
                      {"hash", hash_hex(file.bin().bytes().data(), file.bin().bytes().size())},
                      {"bin_stamp", stamp},
                      {"tokens", file.tokens()},
                      {"largest_token", largest},
                      {"tokenizer_vocab", vocab}};
  // A token file made by prepare_from_text keeps its own side file.
  if (side.empty()) {
    if (Status status = write_side(paths.side, fresh); !status.ok()) {
      log_debug("the scan of '{}.bin' is not kept: {}", paths.prefix, status.message());
    }
  }
  return from_side(paths, fresh);
}

}  // namespace

Result<PreparedData> prepare_data(const TrainConfig& config, const std::function<bool()>& give_up) {
  if (config.text_path.empty() && config.tokens_path.empty()) {
    return invalid_argument(
        "no training data: set data.text (a UTF-8 text) or data.tokens (a token file)");
  }
  const Paths paths = paths_of(config);
  if (config.text_path.empty()) return prepare_own_tokens(config, paths);
  return prepare_from_text(config, paths, give_up);
}

Status check_still_prepared(const TrainConfig& config, const std::string& hash) {
  if (config.text_path.empty()) return {};
  const Paths paths = paths_of(config);
  const Json side = read_side(paths);
  if (!side.value("building", true) && side.value("hash", std::string()) == hash) return {};
  return unavailable(
      "another run has just changed '{}.bin'; give each run its own output.dir or data.tokens",
      paths.prefix);
}

Result<int> vocab_for(const TrainConfig& config, const PreparedData& data) {
  const int vocab = config.model.vocab > 0 ? config.model.vocab : data.tokenizer_vocab;
  if (vocab == 0) {
    return invalid_argument(
        "model.vocab is 0 and there is no tokeniser to take it from: set model.vocab or "
        "data.tokenizer");
  }
  if (data.largest_token >= vocab) {
    return invalid_argument("'{}.bin' holds token {}, but model.vocab is {}", data.token_prefix,
                            data.largest_token, vocab);
  }
  return vocab;
}

}  // namespace flextrain::trainer
