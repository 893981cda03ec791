// SPDX-License-Identifier: MIT
// Whole-file reading and crash-safe writing. Thread-safe: no shared state.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace flextrain {

// The whole file as bytes. kNotFound when it does not exist, kResourceExhausted when it is larger
// than max_bytes. Never waits: a pipe is kInvalidArgument.
Result<std::string> read_file(const std::string& path, size_t max_bytes = size_t{1} << 30);

// Replaces `path` by `data` so that a crash at any moment leaves the old or the new content:
// temp file in the same folder → fsync → rename → fsync of the folder. New files get `mode`.
Status write_file_atomically(const std::string& path, std::string_view data, int mode = 0644);

// fsync of a directory, so that renames in it survive a power loss.
Status sync_directory(const std::string& path);

// mkdir -p.
Status make_directories(const std::string& path);

}  // namespace flextrain
