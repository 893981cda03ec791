// SPDX-License-Identifier: MIT
// Writing a checkpoint and putting it in place (checkpoint.h).
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/collective.h"

namespace flextrain::trainer {
namespace {

// Writes this rank's layers into `temp` and returns their table as JSON text.
Result<std::string> write_own_layers(FileSystem& files, const Engine& engine,
                                     const std::string& temp) {
  Json table = Json::array();
  for (const planner::LayerId layer : engine.layers_to_save()) {
    ASSIGN_OR_RETURN(const LayerState state, engine.export_layer(layer));
    ASSIGN_OR_RETURN(const EncodedLayer encoded, encode_layer(state));
    RETURN_IF_ERROR(write_synced(files, temp + "/" + encoded.entry.file, encoded.bytes));
    table.push_back(layer_entry_to_json(encoded.entry));
  }
  return table.dump();
}

// All ranks' tables as one, checked for completeness.
Result<std::vector<LayerEntry>> merge_tables(FileSystem& files, const std::string& temp,
                                             const std::vector<std::string>& tables, int layers) {
  std::vector<LayerEntry> merged;
  for (size_t rank = 0; rank < tables.size(); ++rank) {
    ASSIGN_OR_RETURN(const Json table, parse_json(tables[rank], "layer table"));
    for (const Json& item : table) {
      ASSIGN_OR_RETURN(LayerEntry entry, layer_entry_from_json(item));
      const Result<int64_t> size = files.file_size(temp + "/" + entry.file);
      if (!size.ok() || *size != entry.bytes) {
        return failed_precondition(
            "rank 0 does not see {} as rank {} wrote it in '{}': checkpoint.dir must be on a file "
            "system that all nodes share",
            entry.file, rank, temp);
      }
      merged.push_back(std::move(entry));
    }
  }
  std::sort(merged.begin(), merged.end(),
            [](const LayerEntry& a, const LayerEntry& b) { return a.layer < b.layer; });
  for (int layer = 0; layer < layers; ++layer) {
    if (static_cast<size_t>(layer) >= merged.size() ||
        merged[static_cast<size_t>(layer)].layer != layer) {
      return internal_error("layer {} was saved by no rank, or by two", layer);
    }
  }
  if (static_cast<int>(merged.size()) != layers) {
    return internal_error("{} layers were saved, the model has {}", merged.size(), layers);
  }
  return merged;
}

// Rank 0: manifest → rename → latest. Returns the digest.
Result<std::string> commit(FileSystem& files, const std::string& temp, const std::string& name,
                           const TrainConfig& config, const planner::Plan& plan,
                           const CheckpointMeta& meta, const std::vector<std::string>& tables) {
  const std::string& dir = config.checkpoint_dir;
  const std::string path = dir + "/" + name;
  Manifest manifest;
  manifest.cursor = meta.cursor;
  manifest.fingerprint = meta.fingerprint;
  manifest.data_hash = meta.data_hash;
  manifest.config = config;
  manifest.plan = plan;
  ASSIGN_OR_RETURN(manifest.layers, merge_tables(files, temp, tables, num_layers(config.model)));
  manifest.digest = state_digest(manifest.layers, manifest.cursor);
  RETURN_IF_ERROR(write_synced(files, temp + "/manifest.json", manifest_to_text(manifest)));
  RETURN_IF_ERROR(files.sync_directory(temp));
  if (files.exists(path)) {
    // The same step again: a damaged one that was passed over. rename(2) does not replace a
    // directory that holds files, so it goes out of the way first.
    const std::string old = fmt::format("{}.tmp-old-{}", path, random_hex_id());
    RETURN_IF_ERROR(files.rename(path, old));
    RETURN_IF_ERROR(files.rename(temp, path));
    (void)files.remove_all(old);
  } else {
    RETURN_IF_ERROR(files.rename(temp, path));
  }
  RETURN_IF_ERROR(files.sync_directory(dir));
  if (Status status = replace_file(files, dir + "/latest", name + "\n"); !status.ok()) {
    // The checkpoint itself is safe, and resuming goes by step number.
    log_warning("{} is saved, but 'latest' could not be moved to it: {}", name, status.message());
  }
  return manifest.digest;
}

}  // namespace

Result<std::string> save_checkpoint(FileSystem& files, Communicator& comm, const Engine& engine,
                                    const TrainConfig& config, const planner::Plan& plan,
                                    const CheckpointMeta& meta) {
  const std::string name = fmt::format("step-{}", meta.cursor.step);
  const auto make_temp = [&]() -> Result<std::string> {
    const std::string temp =
        fmt::format("{}/{}.tmp-{}", config.checkpoint_dir, name, random_hex_id());
    if (Status status = files.make_directories(temp); !status.ok()) {
      (void)files.remove_all(temp);
      return status;
    }
    return temp;
  };
  const std::string failure = fmt::format("cannot save checkpoint {}", name);
  const Result<std::string> made =
      share(comm, 0, comm.rank() == 0 ? make_temp() : Result<std::string>(""));
  if (!made.ok()) return made.status().with_context(failure);
  const std::string& temp = *made;

  const auto begin = std::chrono::steady_clock::now();
  const Result<std::string> table = write_own_layers(files, engine, temp);
  std::this_thread::sleep_until(begin + std::chrono::duration<double>(config.save_seconds));
  const Status written = agree(comm, table.status());
  Result<std::string> digest = written.ok() ? Result<std::string>("") : written;
  if (written.ok()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> tables, comm.gather_bytes(*table, 0));
    if (comm.rank() == 0) digest = commit(files, temp, name, config, plan, meta, tables);
    digest = share(comm, 0, digest);
  }
  if (digest.ok()) return digest;
  if (comm.rank() == 0) (void)files.remove_all(temp);
  return digest.status().with_context(failure);
}

}  // namespace flextrain::trainer
