// SPDX-License-Identifier: MIT
#include "store/compress.h"

#include <zstd.h>

namespace flextrain::store {
namespace {
constexpr int kLevel = 3;  // zstd's default: snapshots are small, the writer thread must not linger
constexpr unsigned long long kMaxBytes = 1ULL << 30;
}  // namespace

Result<Blob> compress_json(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  Blob blob;
  blob.bytes.resize(ZSTD_compressBound(text.size()));
  const size_t size =
      ZSTD_compress(blob.bytes.data(), blob.bytes.size(), text.data(), text.size(), kLevel);
  if (ZSTD_isError(size)) return internal_error("zstd: {}", ZSTD_getErrorName(size));
  blob.bytes.resize(size);
  return blob;
}

Result<Json> decompress_json(const Blob& blob, std::string_view what) {
  const unsigned long long size = ZSTD_getFrameContentSize(blob.bytes.data(), blob.bytes.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kMaxBytes)
    return data_loss("{}: the compressed content is damaged", what);
  std::string text(size, '\0');
  const size_t got =
      ZSTD_decompress(text.data(), text.size(), blob.bytes.data(), blob.bytes.size());
  if (ZSTD_isError(got)) return data_loss("{}: {}", what, ZSTD_getErrorName(got));
  text.resize(got);
  return parse_json(text, what);
}

}  // namespace flextrain::store
