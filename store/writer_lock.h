// SPDX-License-Identifier: MIT
// The lock that keeps a second controller from writing. Private to store/.
#pragma once

#include <string>

#include "base/status.h"

namespace flextrain::store {

// An exclusive open-file-description lock on `path` (so also against another Store in this
// process), holding "host pid" as text; released when destroyed or when the process dies.
class WriterLock {
 public:
  WriterLock() = default;
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;
  // kUnavailable when another holds it, naming the holder. `database` is for messages.
  Status acquire(const std::string& path, const std::string& database);
  // Whether the file that is locked is still the one at `path`: a lock on a deleted file keeps
  // nobody out.
  bool holds(const std::string& path) const;
  void release();

 private:
  int fd_ = -1;
};

}  // namespace flextrain::store
