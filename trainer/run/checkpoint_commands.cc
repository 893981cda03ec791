// SPDX-License-Identifier: MIT
// digest and reshard: commands over a checkpoint on disk, one process.
#include <fmt/ranges.h>

#include <chrono>
#include <optional>
#include <vector>

#include "base/file_lock.h"
#include "base/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/run/commands.h"
#include "trainer/run/exit_code.h"
#include "trainer/run/plan_choice.h"

namespace flextrain::trainer {
namespace {

constexpr std::chrono::seconds kLockPatience{5};  // a run holds its directory for hours

Result<std::string> digest_of(const std::string& given) {
  FileSystem& files = posix_file_system();
  ASSIGN_OR_RETURN(const std::string path, resolve_checkpoint(files, given));
  ASSIGN_OR_RETURN(const Manifest manifest, verify_checkpoint(files, path));
  return manifest.digest;
}

// Ranks that hold each layer.
std::vector<std::vector<int>> holders(const planner::Plan& plan) {
  std::vector<std::vector<int>> ranks(static_cast<size_t>(planner::num_layers(plan)));
  for (const planner::Pipeline& pipeline : plan.pipelines) {
    for (const planner::Stage& stage : pipeline.stages) {
      for (const std::vector<planner::LayerId>& chunk : stage.chunks) {
        for (const planner::LayerId layer : chunk) {
          if (layer == planner::kNoOp) continue;
          for (const planner::StageRank& rank : stage.ranks) {
            ranks[static_cast<size_t>(layer)].push_back(rank.rank);
          }
        }
      }
    }
  }
  return ranks;
}

Status reshard(const ReshardOptions& options) {
  FileSystem& files = posix_file_system();
  ASSIGN_OR_RETURN(const std::string path, resolve_checkpoint(files, options.checkpoint));
  std::optional<FileLock> lock;
  if (!options.dry_run) {
    const size_t slash = path.rfind('/');
    const std::string dir = slash == std::string::npos ? "." : path.substr(0, slash);
    ASSIGN_OR_RETURN(FileLock taken, FileLock::acquire(checkpoint_lock_path(dir), kLockPatience));
    lock.emplace(std::move(taken));
  }
  ASSIGN_OR_RETURN(Manifest manifest, verify_checkpoint(files, path));
  Result<planner::Plan> target =
      options.plan_file.empty()
          ? regular_plan(manifest.config, options.pipeline_parallel, options.data_parallel)
          : read_plan(options.plan_file);
  if (!target.ok()) return target.status();
  RETURN_IF_ERROR(check_plan(*target, manifest.config, planner::num_ranks(*target)));
  const auto before = holders(manifest.plan), after = holders(*target);
  fmt::print("{}: {} -> {}\n", path, planner::plan_summary(manifest.plan),
             planner::plan_summary(*target));
  for (size_t layer = 0; layer < after.size(); ++layer) {
    const int head = manifest.config.model.layers + 1, id = static_cast<int>(layer);
    const std::string name = id == 0      ? "embedding"
                             : id < head  ? fmt::format("layer {}", id)
                             : id == head ? "head"
                                          : fmt::format("mtp {} {}", (id - head + 1) / 2,
                                                        (id - head) % 2 == 1 ? "block" : "loss");
    fmt::print("  {:<10} ranks {} -> {}\n", name, fmt::join(before[layer], ","),
               fmt::join(after[layer], ","));
  }
  if (options.dry_run) return {};
  manifest.plan = *std::move(target);
  return replace_manifest(files, path, manifest);
}

}  // namespace

int digest_command(const std::string& checkpoint) {
  const Result<std::string> digest = digest_of(checkpoint);
  if (!digest.ok()) {
    log_error("{}", digest.status().message());
    return exit_code_for(digest.status());
  }
  fmt::print("{}\n", *digest);
  return kExitComplete;
}

int reshard_command(const ReshardOptions& options) {
  const Status status = reshard(options);
  if (status.ok()) return kExitComplete;
  log_error("{}", status.message());
  return exit_code_for(status);
}

}  // namespace flextrain::trainer
