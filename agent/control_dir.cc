// SPDX-License-Identifier: MIT
#include "agent/control_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace flextrain::agent {
namespace {

constexpr const char* kLaunchFiles[] = {"plan.json",     "request.json", "fingerprint",
                                        "progress.json", "profile.json", "scale_table.json",
                                        "phases.jsonl",  "saved"};
constexpr const char* kLockName = "agent.lock";
constexpr const char* kStartedName = "started";
constexpr const char* kProbeName = "nodes.log";
constexpr size_t kMaxFile = size_t{64} << 20;

Status check_ours(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return not_found("cannot look at '{}': {}", path, std::strerror(errno));
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    return permission_denied(
        "control folder '{}' is not a folder of ours that only we can write; "
        "name another with --control-dir",
        path);
  }
  return {};
}

Status write_file_if_missing(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
  if (fd < 0) return permission_denied("cannot create '{}': {}", path, std::strerror(errno));
  ::close(fd);
  return {};
}

std::optional<Json> read_json(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxFile);
  if (!text.ok()) return std::nullopt;
  Result<Json> json = parse_json(*text, path);
  if (!json.ok()) return std::nullopt;
  return std::move(*json);
}

double number_or(const Json& json, const char* name, double otherwise) {
  const auto it = json.find(name);
  if (it == json.end() || !it->is_number()) return otherwise;
  return it->get<double>();
}

Json layout_to_json(const Layout& layout) {
  protocol::Order order;  // carries allocations and plan in the wire's own encoding
  order.allocations = layout.allocations;
  order.plan = layout.plan;
  return protocol::to_json(order);
}

}  // namespace

int Layout::gpus() const {
  int sum = 0;
  for (const auto& allocation : allocations) sum += allocation.gpus;
  return sum;
}

Result<ControlDir> ControlDir::open(const std::string& path, const protocol::JobIdentity& job) {
  ControlDir dir;
  dir.path_ = path;
  if (path.empty()) {
    const char* temp = std::getenv("TMPDIR");
    const std::string base = fmt::format(
        "{}/flextrain-{}", temp == nullptr || *temp == '\0' ? "/tmp" : temp, ::geteuid());
    if (::mkdir(base.c_str(), 0700) != 0 && errno != EEXIST) {
      return internal_error("cannot make '{}': {}", base, std::strerror(errno));
    }
    RETURN_IF_ERROR(check_ours(base));
    dir.path_ = job.job_id != 0 ? fmt::format("{}/job-{}.{}", base, job.job_id, job.restart_count)
                                : fmt::format("{}/local-{}", base, ::getpid());
    dir.own_ = true;
  }
  RETURN_IF_ERROR(make_directories(dir.path_));
  std::error_code ignored;
  dir.path_ = std::filesystem::absolute(dir.path_, ignored).string();
  RETURN_IF_ERROR(check_ours(dir.path_));
  const bool known = ::access(dir.file(kLockName).c_str(), F_OK) == 0;
  for (const char* name : kLaunchFiles) {
    if (!known && ::access(dir.file(name).c_str(), F_OK) == 0) {
      return already_exists(
          "control folder '{}' holds a {} that no agent put there; name an empty folder with "
          "--control-dir",
          dir.path_, name);
    }
  }
  // From here on the folder is known as an agent's.
  RETURN_IF_ERROR(write_file_if_missing(dir.file(kLockName)));
  return dir;
}

bool ControlDir::Watch::changed(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  if (info.st_ino == inode_ && info.st_mtim.tv_sec == seconds_ &&
      info.st_mtim.tv_nsec == nanoseconds_ && info.st_size == size_) {
    return false;
  }
  inode_ = info.st_ino;
  seconds_ = info.st_mtim.tv_sec;
  nanoseconds_ = info.st_mtim.tv_nsec;
  size_ = info.st_size;
  return true;
}

Status ControlDir::prepare_launch(const Layout& layout) {
  const std::string plan = file("plan.json");
  ::unlink(file("phases.jsonl").c_str());
  ::unlink(file(kStartedName).c_str());
  new_phases();  // where it cannot be removed
  progress_.changed(file("progress.json"));
  if (layout.plan.is_null()) {
    if (::access(plan.c_str(), F_OK) == 0 && ::unlink(plan.c_str()) != 0) {
      return internal_error("cannot remove '{}': {}", plan, std::strerror(errno));
    }
    return {};
  }
  const std::string text = layout.plan.dump(1) + "\n";
  const Status written = write_file_atomically(plan, text);
  // On a full disk the same Plan may be there from before.
  if (!written.ok() && read_file(plan, kMaxFile).value_or("") == text) return {};
  return written;
}

void ControlDir::mark_started(const std::string& path) {
  // Without room for it the folder cannot be written, which the agent sees for itself.
  (void)write_file_if_missing(path + "/" + kStartedName);
}

bool ControlDir::started() const {
  return ::access(file(kStartedName).c_str(), F_OK) == 0 || !check_writable().ok();
}

Status ControlDir::check_writable() const {
  const std::string probe = file("probe");
  const Status written = write_file_atomically(probe, "probe\n", 0600);
  ::unlink(probe.c_str());
  return written;
}

Status ControlDir::write_request(int max_gpus, const std::string& elastic_mode,
                                 const std::string& device_type) {
  const Json request = {{"max_gpus", max_gpus},
                        {"elastic_mode", elastic_mode},
                        {"device_type", device_type},
                        {"memory_limit_bytes", 0}};
  return write_file_atomically(file("request.json"), request.dump(1) + "\n");
}

std::optional<TrainerProgress> ControlDir::new_progress() {
  if (!progress_.changed(file("progress.json"))) return std::nullopt;
  const std::optional<Json> json = read_json(file("progress.json"));
  if (!json || !json->is_object()) return std::nullopt;
  TrainerProgress progress;
  progress.time = number_or(*json, "time", 0);
  // The same names as on the wire; a trainer of another kind may leave some out.
  Json wire = *json;
  wire.erase("state");
  Result<protocol::ProgressRequest> message = protocol::from_json<protocol::ProgressRequest>(wire);
  if (!message.ok()) {
    log_warning("progress.json of the trainer: {}", message.status().message());
    return std::nullopt;
  }
  progress.message = std::move(*message);
  return progress;
}

std::optional<std::string> ControlDir::new_fingerprint() {
  if (!fingerprint_.changed(file("fingerprint"))) return std::nullopt;
  const Result<std::string> text = read_file(file("fingerprint"), 65536);
  if (!text.ok()) return std::nullopt;
  return text->substr(0, text->find('\n'));
}

std::optional<Json> ControlDir::new_scale_table() {
  if (!scale_table_.changed(file("scale_table.json"))) return std::nullopt;
  return read_json(file("scale_table.json"));
}

std::optional<Json> ControlDir::profile() const { return read_json(file("profile.json")); }

std::vector<PhaseMark> ControlDir::new_phases() {
  std::vector<PhaseMark> marks;
  std::error_code error;
  const auto size = std::filesystem::file_size(file("phases.jsonl"), error);
  if (error || size < phases_offset_) phases_offset_ = 0;  // a new file, or none yet
  if (error || size == phases_offset_) return marks;
  std::ifstream in(file("phases.jsonl"));
  in.seekg(static_cast<std::streamoff>(phases_offset_));
  for (std::string line; std::getline(in, line) && !in.eof();) {  // one may be half-written
    phases_offset_ += line.size() + 1;
    const Result<Json> json = parse_json(line, "phase");
    if (!json.ok() || !json->is_object()) continue;
    const auto text = [&](const char* name) {
      const auto it = json->find(name);
      return it != json->end() && it->is_string() ? it->get<std::string>() : std::string();
    };
    if (!text("phase").empty()) {
      marks.push_back({text("phase"), number_or(*json, "time", 0), text("reason")});
    }
  }
  return marks;
}

void ControlDir::remove_former_launch() const {
  for (const char* name : kLaunchFiles) ::unlink(file(name).c_str());
}

std::string ControlDir::probe_log() const { return file(kProbeName); }

std::string ControlDir::probe_answer() const {
  const std::string text = read_file(probe_log(), kMaxFile).value_or("");
  const std::string_view all = trim(text);
  return std::string(trim(all.substr(all.rfind('\n') + 1)));
}

std::string ControlDir::lock_path() const { return file(kLockName); }

AgentState ControlDir::load_state() const {
  AgentState state;
  const std::optional<Json> json = read_json(file("agent_state.json"));
  if (!json) return state;
  const auto decoded = decode_json("agent_state.json", [&] {
    AgentState s;
    s.epoch = json->at("epoch").get<int64_t>();
    s.last_sequence = json->at("last_sequence").get<int64_t>();
    s.last_order_id = json->at("last_order_id").get<std::string>();
    if (json->contains("last_report")) {
      auto report = protocol::from_json<protocol::ReportRequest>(json->at("last_report"));
      if (report.ok()) s.last_report = std::move(*report);
    }
    if (auto order = protocol::from_json<protocol::Order>(json->at("layout")); order.ok()) {
      s.layout = {std::move(order->allocations), std::move(order->plan)};
    }
    return s;
  });
  if (!decoded.ok()) {
    log_warning("{}: starting without it", decoded.status().message());
    return state;
  }
  return *decoded;
}

Status ControlDir::save_state(const AgentState& state) const {
  Json json = {{"epoch", state.epoch},
               {"last_sequence", state.last_sequence},
               {"last_order_id", state.last_order_id},
               {"layout", layout_to_json(state.layout)}};
  if (state.last_report) json["last_report"] = protocol::to_json(*state.last_report);
  return write_file_atomically(file("agent_state.json"), json.dump(1) + "\n", 0600);
}

void ControlDir::remove() {
  if (!own_) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Json plan_of_table(const Json& table, int gpus) {
  const auto plan = decode_json("scale table", [&] {
    for (const Json& entry : table.at("entries")) {
      if (entry.at("kept").get<bool>() && entry.at("shape").at("gpus").get<int>() == gpus) {
        return entry.at("plan");
      }
    }
    return Json();
  });
  return plan.ok() ? *plan : Json();
}

}  // namespace flextrain::agent
