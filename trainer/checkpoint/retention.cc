// SPDX-License-Identifier: MIT
// Which checkpoints stay and which are removed (checkpoint.h).
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "trainer/checkpoint/checkpoint.h"

namespace flextrain::trainer {
namespace {

// Bytes of the files in a checkpoint; what cannot be measured counts nothing.
int64_t checkpoint_bytes(FileSystem& files, const std::string& path) {
  const Result<std::vector<std::string>> names = files.list(path);
  int64_t total = 0;
  if (!names.ok()) return 0;
  for (const std::string& name : *names) {
    total += files.file_size(path + "/" + name).value_or(0);
  }
  return total;
}

// Out of sight by one rename first: a deletion that is interrupted leaves no half checkpoint.
Status delete_checkpoint(FileSystem& files, const std::string& path) {
  const std::string doomed = fmt::format("{}.tmp-delete-{}", path, random_hex_id());
  RETURN_IF_ERROR(files.rename(path, doomed));
  return files.remove_all(doomed);
}

}  // namespace

Status apply_retention(FileSystem& files, const std::string& dir, const std::string& just_saved,
                       int keep, int64_t disk_budget_bytes) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, list_checkpoints(files, dir));
  // Candidates in the order of their going. Those newer than the one just saved are damaged
  // leftovers (an intact one would have been resumed from) and go first; then the oldest.
  const auto self = std::find(names.begin(), names.end(), just_saved);
  if (self == names.end()) return not_found("'{}' holds no {}", dir, just_saved);
  std::vector<std::string> candidates(names.begin(), self);
  for (auto name = names.rbegin(); *name != just_saved; ++name) candidates.push_back(*name);

  int64_t total = 0;
  std::vector<int64_t> bytes;
  for (const std::string& name : candidates) {
    bytes.push_back(checkpoint_bytes(files, dir + "/" + name));
    total += bytes.back();
  }
  total += checkpoint_bytes(files, dir + "/" + just_saved);
  size_t doomed = 0;
  const auto over = [&] {
    return names.size() - doomed > static_cast<size_t>(keep) ||
           (disk_budget_bytes > 0 && total > disk_budget_bytes);
  };
  while (doomed < candidates.size() && over()) total -= bytes[doomed++];
  if (doomed == 0) return {};
  if (doomed == candidates.size()) {
    const Result<Manifest> intact = verify_checkpoint(files, dir + "/" + just_saved);
    if (!intact.ok()) {
      return intact.status().with_context("older checkpoints are kept, the new one is not intact");
    }
  }
  for (size_t i = 0; i < doomed; ++i) {
    RETURN_IF_ERROR(delete_checkpoint(files, dir + "/" + candidates[i]));
    log_debug("removed checkpoint {} (retention)", candidates[i]);
  }
  return {};
}

}  // namespace flextrain::trainer
