// SPDX-License-Identifier: MIT
// trainer/checkpoint: training state on disk. Owns the checkpoint directory and nothing else; see
// docs/checkpoint-format.md.
//
// FileSystem is everything a checkpoint does to the outside world, so that tests can inject faults
// at any operation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain::trainer {

// A new file, written front to back.
class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; an unsynced file may be lost
  virtual Status append(std::string_view data) = 0;
  virtual Status sync() = 0;   // returns when the bytes are on the disk
  virtual Status close() = 0;  // at most once, the last call
};

// Thread-compatible. Messages name the path and the operating system's reason; a full disk is
// kResourceExhausted, a missing file kNotFound.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Empties a file that exists.
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;
  virtual Result<std::string> read(const std::string& path) = 0;               // all of it
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;  // sorted names
  virtual Result<int64_t> file_size(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  virtual Status make_directories(const std::string& path) = 0;  // parents too; ok when it exists
  virtual Status rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual Status remove_all(const std::string& path) = 0;      // ok when it does not exist
  virtual Status sync_directory(const std::string& path) = 0;  // makes renames in it last
};

// The real one.
FileSystem& posix_file_system();

// create + append + sync + close.
Status write_synced(FileSystem& files, const std::string& path, std::string_view data);
// Replaces `path`: temp → fsync → rename → fsync parent.
Status replace_file(FileSystem& files, const std::string& path, std::string_view data);

}  // namespace flextrain::trainer
