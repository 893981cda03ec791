// SPDX-License-Identifier: MIT
#include "trainer/run/control_dir.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/bounded_json.h"
#include "base/errno_status.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/unix_time.h"

namespace flextrain::trainer {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{500};
constexpr size_t kMaxFileBytes = size_t{64} << 20;

// The file's text, or nothing when it does not exist.
Result<std::optional<std::string>> optional_file(const std::string& path) {
  Result<std::string> text = read_file(path, kMaxFileBytes);
  if (text.ok()) return std::optional<std::string>(*std::move(text));
  if (text.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
  return text.status();
}

}  // namespace

Result<ElasticBounds> elastic_bounds_from_text(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, parse_bounded_json(text, "request.json"));
  ElasticBounds bounds;
  const Result<bool> decoded = decode_json("request.json", [&] {
    bounds.max_gpus = json.at("max_gpus").get<int>();
    bounds.elastic_mode = json.at("elastic_mode").get<std::string>();
    bounds.device_type = json.value("device_type", std::string());
    bounds.memory_limit_bytes = json.value("memory_limit_bytes", int64_t{0});
    return true;
  });
  if (!decoded.ok()) return decoded.status();
  if (bounds.max_gpus < 1 || bounds.memory_limit_bytes < 0 ||
      (bounds.elastic_mode != "pp" && bounds.elastic_mode != "dp+pp")) {
    return invalid_argument(
        "request.json: max_gpus must be positive, elastic_mode \"pp\" or \"dp+pp\", "
        "memory_limit_bytes not negative");
  }
  return bounds;
}

ControlDir ControlDir::from_environment() {
  const char* path = std::getenv("FLEXTRAIN_CONTROL_DIR");
  return ControlDir(path != nullptr ? path : "");
}

Result<std::optional<planner::Plan>> ControlDir::plan() const {
  if (!present()) return std::optional<planner::Plan>();
  ASSIGN_OR_RETURN(const std::optional<std::string> text, optional_file(path_ + "/plan.json"));
  if (!text.has_value()) return std::optional<planner::Plan>();
  ASSIGN_OR_RETURN(const Json json, parse_bounded_json(*text, path_ + "/plan.json"));
  ASSIGN_OR_RETURN(planner::Plan plan, planner::plan_from_json(json));
  return std::optional<planner::Plan>(std::move(plan));
}

Result<std::optional<ElasticBounds>> ControlDir::request() const {
  if (!present()) return std::optional<ElasticBounds>();
  ASSIGN_OR_RETURN(const std::optional<std::string> text, optional_file(path_ + "/request.json"));
  if (!text.has_value()) return std::optional<ElasticBounds>();
  ASSIGN_OR_RETURN(ElasticBounds bounds, elastic_bounds_from_text(*text));
  return std::optional<ElasticBounds>(std::move(bounds));
}

void ControlDir::write(const std::string& name, const std::string& text) const {
  if (!present()) return;
  tell(write_file_atomically(path_ + "/" + name, text));
}

void ControlDir::tell(const Status& written) const {
  if (written.ok() != failing_) return;
  failing_ = !written.ok();
  if (failing_) {
    log_warning("the agent cannot be told how training goes: {}; training goes on",
                written.message());
  } else {
    log_info("the agent is told again how training goes");
  }
}

void ControlDir::write_fingerprint(const std::string& fingerprint) const {
  write("fingerprint", fingerprint + "\n");
}

void ControlDir::note_saved() const {
  if (!has_saved()) write("saved", "\n");
}

bool ControlDir::has_saved() const {
  return present() && ::access((path_ + "/saved").c_str(), F_OK) == 0;
}

void ControlDir::write_progress(const Progress& p, bool always) {
  const auto now = std::chrono::steady_clock::now();
  if (!present() || (!always && last_progress_ && now - *last_progress_ < kProgressInterval)) {
    return;
  }
  last_progress_ = now;
  write("progress.json", Json{{"step", p.step},
                              {"total_steps", p.total_steps},
                              {"consumed_samples", p.consumed_samples},
                              {"loss", p.loss},
                              {"tokens_per_second", p.tokens_per_second},
                              {"step_seconds", p.step_seconds},
                              {"gpus", p.gpus},
                              {"plan_id", p.plan_id},
                              {"time", unix_seconds()}}
                                 .dump() +
                             "\n");
}

void ControlDir::write_profile(const planner::StepProfile& profile) const {
  write("profile.json", planner::profile_to_json(profile).dump(1) + "\n");
}

void ControlDir::write_scale_table(const planner::ScaleTable& table) const {
  write("scale_table.json", planner::scale_table_to_json(table).dump(1) + "\n");
}

void ControlDir::mark(const std::string& phase, const std::string& reason) const {
  if (!present()) return;
  const std::string path = path_ + "/phases.jsonl";
  Json json = {{"phase", phase}, {"time", unix_seconds()}};
  if (!reason.empty()) json["reason"] = reason;
  const std::string line = json.dump() + "\n";
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return tell(errno_status("open", path, errno));
  errno = ENOSPC;  // what a write that ends early means
  const bool whole = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  tell(whole ? Status() : errno_status("append to", path, errno));
  ::close(fd);
}

}  // namespace flextrain::trainer
