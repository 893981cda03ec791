// SPDX-License-Identifier: MIT
// Finding, checking and loading checkpoints (checkpoint.h).
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/collective.h"
#include "trainer/config/config_reader.h"

namespace flextrain::trainer {
namespace {

constexpr std::string_view kPrefix = "step-";

// The N of "step-N", -1 for any other name.
int64_t step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  const std::string_view digits = name.substr(kPrefix.size());
  if (digits.empty() ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return -1;
  }
  return parse_int(digits).value_or(-1);
}

// May a run with `config` continue from `manifest`? The same answer on every rank.
Status check_compatible(const TrainConfig& config, const std::string& fingerprint,
                        const Manifest& manifest, const std::string& path) {
  const std::vector<std::string> differences = model_differences(config, manifest.config);
  if (!differences.empty()) {
    std::string all;
    for (const std::string& one : differences) all += (all.empty() ? "" : "; ") + one;
    return failed_precondition(
        "'{}' is of another model: {}. Train it with its own configuration, or choose another "
        "checkpoint.dir",
        path, all);
  }
  if (fingerprint != manifest.fingerprint && config.numerics == planner::Numerics::kExact) {
    return failed_precondition(
        "'{}' was made with the numerics '{}', here they are '{}': the bits would differ. Continue "
        "on the same kind of machine and library, or set training.numerics = \"fp32\" to give up "
        "exactness",
        path, manifest.fingerprint, fingerprint);
  }
  return {};
}

// Reads, verifies and imports this rank's layers. `damage` is set when the files are to blame, the
// return value when anything else is.
Status import_own_layers(FileSystem& files, const std::string& path, const Manifest& manifest,
                         Engine& engine, Status& damage) {
  for (const planner::LayerId layer : engine.layers_held()) {
    const LayerEntry& entry = manifest.layers.at(static_cast<size_t>(layer));
    const Result<std::string> bytes = files.read(path + "/" + entry.file);
    const Result<LayerState> state =
        bytes.ok() ? decode_layer(*bytes, entry) : Result<LayerState>(bytes.status());
    if (!state.ok()) {
      damage = state.status();
      return {};
    }
    RETURN_IF_ERROR(engine.import_layer(*state));
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> list_checkpoints(FileSystem& files, const std::string& dir) {
  if (!files.exists(dir)) return std::vector<std::string>{};
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(dir));
  std::vector<std::string> checkpoints;
  for (const std::string& name : names) {
    if (step_of(name) >= 0) checkpoints.push_back(name);
  }
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const std::string& a, const std::string& b) { return step_of(a) > step_of(b); });
  return checkpoints;
}

std::string checkpoint_lock_path(const std::string& dir) { return dir + "/.lock"; }

Status clean_leftovers(FileSystem& files, const std::string& dir) {
  if (!files.exists(dir)) return {};
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(dir));
  for (const std::string& name : names) {
    const size_t mark = name.find(".tmp-");
    if (mark == std::string::npos || step_of(name.substr(0, mark)) < 0) continue;
    log_info("removing '{}/{}', left by an interrupted save", dir, name);
    if (Status status = files.remove_all(dir + "/" + name); !status.ok()) {
      log_warning("{}", status.message());
    }
  }
  return {};
}

Result<std::string> resolve_checkpoint(FileSystem& files, const std::string& given) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (!files.exists(path)) return not_found("'{}' does not exist", path);
  const size_t slash = path.rfind('/');
  if (step_of(slash == std::string::npos ? path : path.substr(slash + 1)) >= 0 ||
      files.exists(path + "/manifest.json")) {
    return path;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, list_checkpoints(files, path));
  if (names.empty()) {
    return not_found("'{}' is neither a checkpoint nor a directory that holds some (step-N)", path);
  }
  return path + "/" + names.front();
}

Result<Manifest> read_manifest(FileSystem& files, const std::string& path) {
  const Result<std::string> text = files.read(path + "/manifest.json");
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) {
    return data_loss("{}: manifest.json is missing", path);
  }
  if (!text.ok()) return text.status().with_context(path);
  Result<Manifest> manifest = manifest_from_text(*text);
  if (!manifest.ok()) return manifest.status().with_context(path);
  return manifest;
}

Result<Manifest> verify_checkpoint(FileSystem& files, const std::string& path) {
  ASSIGN_OR_RETURN(Manifest manifest, read_manifest(files, path));
  std::vector<LayerEntry> found;
  for (const LayerEntry& entry : manifest.layers) {
    const Result<std::string> bytes = files.read(path + "/" + entry.file);
    const Result<LayerState> state =
        bytes.ok() ? decode_layer(*bytes, entry) : Result<LayerState>(bytes.status());
    if (!state.ok()) return data_loss("{}: {}", path, state.status().message());
    // The digest below is of the values that were read, not of the table's word for them.
    ASSIGN_OR_RETURN(EncodedLayer encoded, encode_layer(*state));
    found.push_back(std::move(encoded.entry));
  }
  if (state_digest(found, manifest.cursor) != manifest.digest) {
    return data_loss("{}: the state does not match the digest in manifest.json", path);
  }
  return manifest;
}

Status replace_manifest(FileSystem& files, const std::string& path, const Manifest& manifest) {
  return replace_file(files, path + "/manifest.json", manifest_to_text(manifest));
}

Result<LoadReport> load_checkpoint(FileSystem& files, Communicator& comm, Engine& engine,
                                   const TrainConfig& config, const std::string& fingerprint) {
  const std::string& dir = config.checkpoint_dir;
  const auto joined_names = [&]() -> Result<std::string> {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, list_checkpoints(files, dir));
    std::string joined;
    for (const std::string& name : names) joined += (joined.empty() ? "" : "\n") + name;
    return joined;
  };
  ASSIGN_OR_RETURN(const std::string joined,
                   share(comm, 0, comm.rank() == 0 ? joined_names() : Result<std::string>("")));
  LoadReport report;
  for (const std::string& name : split(joined, '\n')) {
    const std::string path = dir + "/" + name;
    const auto manifest_text = [&]() -> Result<std::string> {
      ASSIGN_OR_RETURN(const Manifest manifest, read_manifest(files, path));
      return manifest_to_text(manifest);
    };
    const Result<std::string> text =
        share(comm, 0, comm.rank() == 0 ? manifest_text() : Result<std::string>(""));
    if (!text.ok()) {
      // Neither is damage: an unknown version, and a file that may not be read.
      if (text.status().code() == StatusCode::kFailedPrecondition ||
          text.status().code() == StatusCode::kPermissionDenied) {
        return text.status();
      }
      report.damages.push_back(text.status().message());
      continue;
    }
    ASSIGN_OR_RETURN(Manifest manifest, manifest_from_text(*text));
    if (manifest.cursor.step != step_of(name)) {
      // A copy under another name would be taken for the newest at every start.
      report.damages.push_back(fmt::format("{}: manifest.json is of step {}; give it its own name",
                                           path, manifest.cursor.step));
      continue;
    }
    RETURN_IF_ERROR(check_compatible(config, fingerprint, manifest, path));
    Status damage;
    const Status imported = import_own_layers(files, path, manifest, engine, damage);
    RETURN_IF_ERROR(agree(comm, imported));
    damage = agree(comm, damage);
    if (damage.code() == StatusCode::kPermissionDenied) return damage.with_context(path);
    if (!damage.ok()) {
      report.damages.push_back(fmt::format("{}: {}", path, damage.message()));
      continue;
    }
    engine.set_accumulation_scale(manifest.cursor.accumulation_scale);
    if (fingerprint != manifest.fingerprint && comm.rank() == 0) {
      log_warning(
          "'{}' was made with the numerics '{}', here they are '{}'; training goes on in "
          "fp32, with other bits",
          path, manifest.fingerprint, fingerprint);
    }
    report.manifest = std::move(manifest);
    report.path = path;
    return report;
  }
  if (report.damages.empty()) return report;
  std::string all;
  for (const std::string& one : report.damages) all += (all.empty() ? "" : "; ") + one;
  return data_loss(
      "no checkpoint in '{}' is intact: {}. Restore one from a copy, or remove them to start anew",
      dir, all);
}

}  // namespace flextrain::trainer
