// SPDX-License-Identifier: MIT
#include "trainer/data/token_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/errno_status.h"
#include "base/file.h"

namespace flextrain::trainer {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr size_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
constexpr int kI32 = 4, kU16 = 8;  // dtype codes we write
constexpr size_t kFlushBytes = size_t{1} << 20;

// Bytes of a dtype code that holds whole numbers, 0 for one that does not.
int integer_bytes(int dtype) {
  switch (dtype) {
    case 1:
    case 2:
      return 1;
    case 3:
    case 8:
      return 2;
    case 4:
      return 4;
    case 5:
      return 8;
    default:
      return 0;
  }
}

// The arrays of a mapped .idx are not aligned: memcpy.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

int64_t load_token(int dtype, const std::byte* at) {
  switch (dtype) {
    case 1:
      return load<uint8_t>(at);
    case 2:
      return load<int8_t>(at);
    case 3:
      return load<int16_t>(at);
    case 4:
      return load<int32_t>(at);
    case 5:
      return load<int64_t>(at);
    default:
      return load<uint16_t>(at);
  }
}

template <typename T>
void append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

}  // namespace

std::string token_file_prefix(const std::string& path) {
  for (const std::string_view ending : {".bin", ".idx"}) {
    if (path.size() > ending.size() && path.ends_with(ending)) {
      return path.substr(0, path.size() - ending.size());
    }
  }
  return path;
}

Result<TokenFile> TokenFile::open(const std::string& prefix) {
  const std::string idx_path = prefix + ".idx";
  ASSIGN_OR_RETURN(const MappedFile idx, MappedFile::open(idx_path));
  ASSIGN_OR_RETURN(MappedFile bin, MappedFile::open(prefix + ".bin"));
  const std::span<const std::byte> bytes = idx.bytes();
  if (bytes.size() < kHeaderBytes) {
    return data_loss("'{}' is truncated: {} bytes, the header alone has {}", idx_path, bytes.size(),
                     kHeaderBytes);
  }
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return data_loss("'{}' is no token index: it does not begin with MMIDIDX", idx_path);
  }
  const auto version = load<uint64_t>(bytes.data() + 9);
  if (version != 1) {
    return data_loss("'{}' has version {}, only 1 is known", idx_path, version);
  }
  const int dtype = static_cast<int>(load<uint8_t>(bytes.data() + 17));
  const int width = integer_bytes(dtype);
  if (width == 0) {
    return data_loss("'{}' says tokens are of dtype {}, which holds no whole numbers", idx_path,
                     dtype);
  }
  const auto sequences = load<uint64_t>(bytes.data() + 18);
  const auto bounds = load<uint64_t>(bytes.data() + 26);
  // Compared by division, so that absurd counts cannot overflow.
  const uint64_t room = bytes.size() - kHeaderBytes;
  if (sequences > room / 12 || bounds > (room - sequences * 12) / 8) {
    return data_loss(
        "'{}' is truncated: it announces {} sequences and {} document bounds, but has "
        "{} bytes",
        idx_path, sequences, bounds, bytes.size());
  }
  const std::byte* lengths = bytes.data() + kHeaderBytes;
  const std::byte* pointers = lengths + sequences * 4;
  uint64_t position = 0;
  for (uint64_t i = 0; i < sequences; ++i) {
    const auto length = load<int32_t>(lengths + i * 4);
    const auto pointer = load<int64_t>(pointers + i * 8);
    if (length < 0 || pointer < 0 || static_cast<uint64_t>(pointer) != position) {
      return data_loss("'{}': sequence {} has length {} and byte position {}, expected position {}",
                       idx_path, i, length, pointer, position);
    }
    position += static_cast<uint64_t>(length) * static_cast<uint64_t>(width);
  }
  if (position != bin.bytes().size()) {
    return data_loss("'{}' describes {} bytes of tokens, but '{}' has {}", idx_path, position,
                     bin.path(), bin.bytes().size());
  }
  const auto tokens = static_cast<int64_t>(position / static_cast<uint64_t>(width));
  return TokenFile(std::move(bin), dtype, tokens,
                   bounds > 0 ? static_cast<int64_t>(bounds) - 1 : 0);
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  const auto width = static_cast<size_t>(integer_bytes(dtype_));
  const std::byte* at = bin_.bytes().data() + static_cast<size_t>(begin) * width;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int32_t>(load_token(dtype_, at + i * width));
  }
}

Result<int64_t> TokenFile::largest_token() const {
  const auto width = static_cast<size_t>(integer_bytes(dtype_));
  const std::byte* at = bin_.bytes().data();
  int64_t largest = -1;
  for (int64_t i = 0; i < tokens_; ++i) {
    const int64_t token = load_token(dtype_, at + static_cast<size_t>(i) * width);
    if (token < 0) return data_loss("'{}': token {} is negative ({})", bin_.path(), i, token);
    largest = std::max(largest, token);
  }
  return largest;
}

Result<TokenFileWriter> TokenFileWriter::create(const std::string& prefix,
                                                const std::string& suffix, int64_t vocab) {
  TokenFileWriter writer;
  writer.prefix_ = prefix;
  writer.suffix_ = suffix;
  writer.wide_ = vocab > int64_t{std::numeric_limits<uint16_t>::max()} + 1;
  const std::string path = prefix + ".bin." + suffix;
  writer.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) return errno_status("write", path, errno);
  return writer;
}

TokenFileWriter::TokenFileWriter(TokenFileWriter&& other) noexcept
    : prefix_(std::move(other.prefix_)),
      suffix_(std::move(other.suffix_)),
      fd_(std::exchange(other.fd_, -1)),
      wide_(other.wide_),
      buffer_(std::move(other.buffer_)),
      lengths_(std::move(other.lengths_)),
      tokens_(other.tokens_) {}

TokenFileWriter::~TokenFileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink((prefix_ + ".bin." + suffix_).c_str());
}

Status TokenFileWriter::add_document(std::span<const int> ids) {
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return invalid_argument("a document of {} tokens does not fit the index format", ids.size());
  }
  for (const int id : ids) {
    if (wide_) {
      append(buffer_, static_cast<int32_t>(id));
    } else {
      append(buffer_, static_cast<uint16_t>(id));
    }
    if (buffer_.size() >= kFlushBytes) RETURN_IF_ERROR(flush());
  }
  lengths_.push_back(static_cast<int32_t>(ids.size()));
  tokens_ += static_cast<int64_t>(ids.size());
  return {};
}

Status TokenFileWriter::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0) {
      const int error = errno;
      if (error == EINTR) continue;
      return errno_status("write", prefix_ + ".bin", error);
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
  return {};
}

Status TokenFileWriter::finish() {
  RETURN_IF_ERROR(flush());
  const std::string bin = prefix_ + ".bin";
  if (::fsync(fd_) != 0) return errno_status("write", bin, errno);
  std::string idx(kMagic);
  append(idx, uint64_t{1});
  append(idx, static_cast<uint8_t>(wide_ ? kI32 : kU16));
  append(idx, static_cast<uint64_t>(lengths_.size()));
  append(idx, static_cast<uint64_t>(lengths_.size() + 1));
  for (const int32_t length : lengths_) append(idx, length);
  int64_t position = 0;
  for (const int32_t length : lengths_) {
    append(idx, position);
    position += int64_t{length} * (wide_ ? 4 : 2);
  }
  for (size_t i = 0; i <= lengths_.size(); ++i) append(idx, static_cast<int64_t>(i));
  if (::rename((bin + "." + suffix_).c_str(), bin.c_str()) != 0)
    return errno_status("write", bin, errno);
  ::close(std::exchange(fd_, -1));
  return write_file_atomically(prefix_ + ".idx", idx);
}

}  // namespace flextrain::trainer
