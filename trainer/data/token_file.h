// SPDX-License-Identifier: MIT
// Token files in Megatron-LM's layout, so that users can bring theirs: PREFIX.bin holds raw tokens,
// PREFIX.idx describes them. Little-endian .idx: "MMIDIDX\0\0" (9 bytes), u64 version 1, u8 dtype,
// u64 sequence count, u64 number of document bounds; then int32 lengths, int64 byte pointers, int64
// document bounds; mode bytes may follow and are ignored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/data/mapped_file.h"

namespace flextrain::trainer {

// Accepts "PREFIX", "PREFIX.bin" and "PREFIX.idx".
std::string token_file_prefix(const std::string& path);

// One flat stream of tokens, documents one after the other. Thread-safe once open.
class TokenFile {
 public:
  // Checks magic, version, dtype, sizes and that the pointers lie back to back inside the .bin.
  // kNotFound when a file is missing, kDataLoss with what is wrong and where otherwise.
  static Result<TokenFile> open(const std::string& prefix);

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  // Copies tokens [begin, begin + out.size()); precondition: inside [0, tokens()).
  void read(int64_t begin, std::span<int32_t> out) const;
  // Largest token id; reads the whole file. Negative ids give kDataLoss.
  Result<int64_t> largest_token() const;
  const MappedFile& bin() const { return bin_; }

 private:
  TokenFile(MappedFile bin, int dtype, int64_t tokens, int64_t documents)
      : bin_(std::move(bin)), dtype_(dtype), tokens_(tokens), documents_(documents) {}
  MappedFile bin_;
  int dtype_ = 0;
  int64_t tokens_ = 0, documents_ = 0;
};

// Streams documents into a new pair of files; nothing is visible under the final name before
// finish(). Not thread-safe.
class TokenFileWriter {
 public:
  // Writes to PREFIX.bin.SUFFIX until finish(). Tokens are u16 when `vocab` fits, else i32.
  static Result<TokenFileWriter> create(const std::string& prefix, const std::string& suffix,
                                        int64_t vocab);
  TokenFileWriter(TokenFileWriter&& other) noexcept;
  ~TokenFileWriter();  // removes what finish() did not commit

  Status add_document(std::span<const int> ids);
  // Syncs both files and renames them into place, .bin first.
  Status finish();
  int64_t tokens() const { return tokens_; }

 private:
  TokenFileWriter() = default;
  std::string prefix_, suffix_;
  int fd_ = -1;
  bool wide_ = false;
  std::string buffer_;
  std::vector<int32_t> lengths_;
  int64_t tokens_ = 0;
  Status flush();
};

}  // namespace flextrain::trainer
