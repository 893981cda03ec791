// SPDX-License-Identifier: MIT
// A read-only memory-mapped file. Thread-safe once open.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace flextrain::trainer {

class MappedFile {
 public:
  // kNotFound when it is missing. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  int64_t modified_ns() const { return modified_ns_; }  // st_mtim at open

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
  std::string path_;
};

}  // namespace flextrain::trainer
