// SPDX-License-Identifier: MIT
// A lock between processes, also between nodes where the file system passes flock(2) on (NFSv4,
// Lustre with -o flock). The kernel releases it when its process ends, however it ends.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/status.h"

namespace flextrain {

class FileLock {
 public:
  // Takes `path` (made when missing; it stays, since removing it would let two in) for this process
  // alone, for the life of the object. Waits up to `patience`, and no longer than until `give_up`
  // says so. Errors: kUnavailable names the holder when it does not let go, kAborted after give_up,
  // otherwise why the file cannot be made. A file system without locks is warned about and passed.
  static Result<FileLock> acquire(const std::string& path, std::chrono::milliseconds patience,
                                  const std::function<bool()>& give_up = {});
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace flextrain
