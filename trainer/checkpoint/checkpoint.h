// SPDX-License-Identifier: MIT
// Saving and loading training state: DIR/step-N/ with one file per global layer and a manifest, and
// DIR/latest naming the newest. A checkpoint appears by one rename, complete or not at all; it
// knows nothing of the layout that saved it beyond a copy of its Plan.
//
// All ranks see DIR (a shared file system). Functions marked collective are called by all ranks of
// `comm` and return the same Status on each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/comm/communicator.h"
#include "trainer/config/train_config.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

struct CheckpointMeta {  // what a save records besides the tensors
  TrainingCursor cursor;
  std::string fingerprint;
  std::string data_hash;
};

// Collective. Saves the engine's state as DIR/step-N (N = cursor.step) and returns its digest. Each
// layer is written by the rank that layers_to_save() names; rank 0 commits. An existing step-N is
// replaced. On any failure (a full disk: kResourceExhausted) nothing but the temporary directory
// was touched, and that is removed; training may go on.
Result<std::string> save_checkpoint(FileSystem& files, Communicator& comm, const Engine& engine,
                                    const TrainConfig& config, const planner::Plan& plan,
                                    const CheckpointMeta& meta);

struct LoadReport {
  std::optional<Manifest> manifest;  // none: the directory holds no checkpoint at all
  std::string path;                  // the checkpoint that was loaded
  std::vector<std::string> damages;  // "DIR/step-20: layer-3.safetensors …", newest first
};

// Collective. Loads the newest intact checkpoint into the engine, whatever layout saved it, every
// rank its own layers, everything verified. Damaged ones are reported in `damages` and passed over.
// Errors: kDataLoss when there are checkpoints but none is intact; kFailedPrecondition when the
// model's shape differs (naming the keys), or, in `exact`, the numerics fingerprint.
Result<LoadReport> load_checkpoint(FileSystem& files, Communicator& comm, Engine& engine,
                                   const TrainConfig& config, const std::string& fingerprint);

// Names ("step-40") in DIR, newest first; a missing DIR has none. Unfinished ones are no names.
Result<std::vector<std::string>> list_checkpoints(FileSystem& files, const std::string& dir);

// The file that a run locks in its checkpoint directory (base/file_lock.h), so that no other saves,
// tidies or rewrites there.
std::string checkpoint_lock_path(const std::string& dir);

// Removes what interrupted saves and deletions left (step-N.tmp-*). One process only.
// What cannot be removed is warned about.
Status clean_leftovers(FileSystem& files, const std::string& dir);

// Resolves a checkpoint (a step-N directory) or a checkpoint directory (its newest) to step-N's
// path. kNotFound when it is neither.
Result<std::string> resolve_checkpoint(FileSystem& files, const std::string& path);

// Reads DIR/step-N's manifest, or the whole of it with every checksum. kDataLoss names the damage.
Result<Manifest> read_manifest(FileSystem& files, const std::string& path);
Result<Manifest> verify_checkpoint(FileSystem& files, const std::string& path);

// Writes a checkpoint's manifest anew, atomically (`flextrain-trainer reshard`).
Status replace_manifest(FileSystem& files, const std::string& path, const Manifest& manifest);

// Deletes checkpoints beyond the `keep` newest or over `disk_budget_bytes` (0 = unlimited), oldest
// first, never `just_saved` ("step-40"). When only `just_saved` would remain, it is verified first,
// and nothing is deleted if it is not intact. One process only.
Status apply_retention(FileSystem& files, const std::string& dir, const std::string& just_saved,
                       int keep, int64_t disk_budget_bytes);

}  // namespace flextrain::trainer
