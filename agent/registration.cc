// SPDX-License-Identifier: MIT
#include "agent/registration.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "agent/process.h"
#include "base/file.h"
#include "base/text.h"
#include "base/toml.h"

namespace flextrain::agent {
namespace {

constexpr size_t kMaxValue = size_t{100} << 10;

// The JOB.toml of a `flextrain-trainer train JOB.toml …` command.
std::optional<std::string> job_file(const std::vector<std::string>& command) {
  if (command.empty()) return std::nullopt;
  if (std::filesystem::path(command[0]).filename() != "flextrain-trainer") return std::nullopt;
  for (size_t i = 1; i < command.size(); ++i) {
    if (command[i].ends_with(".toml") && !command[i].starts_with("-")) return command[i];
  }
  return std::nullopt;
}

std::map<std::string, int64_t> own_limits() {
  static constexpr std::pair<const char*, __rlimit_resource> kLimits[] = {
      {"RLIMIT_CPU", RLIMIT_CPU},         {"RLIMIT_FSIZE", RLIMIT_FSIZE},
      {"RLIMIT_DATA", RLIMIT_DATA},       {"RLIMIT_STACK", RLIMIT_STACK},
      {"RLIMIT_CORE", RLIMIT_CORE},       {"RLIMIT_RSS", RLIMIT_RSS},
      {"RLIMIT_NPROC", RLIMIT_NPROC},     {"RLIMIT_NOFILE", RLIMIT_NOFILE},
      {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK}, {"RLIMIT_AS", RLIMIT_AS}};
  std::map<std::string, int64_t> limits;
  for (const auto& [name, resource] : kLimits) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) == 0) limits[name] = static_cast<int64_t>(limit.rlim_cur);
  }
  return limits;
}

int own_umask() {  // umask(2) can only be read by changing it, which other threads would see
  const Result<std::string> status = read_file("/proc/self/status", 65536);
  if (!status.ok()) return 0022;
  for (const std::string& line : split(*status, '\n')) {
    if (line.starts_with("Umask:")) {
      return static_cast<int>(std::strtol(std::string(trim(line.substr(6))).c_str(), nullptr, 8));
    }
  }
  return 0022;
}

bool valid_utf8(const std::string& text) {
  return decode_json("text", [&] { return Json(text).dump(); }).ok();
}

}  // namespace

Result<std::string> own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return internal_error("cannot read /proc/self/exe: {}", error.message());
  return path.string();
}

std::vector<std::string> default_fingerprint_command(const std::vector<std::string>& command) {
  const auto file = job_file(command);
  if (!file) return {};
  return {command[0], "fingerprint", *file};
}

std::string numerics_of_command(const std::vector<std::string>& command) {
  const auto file = job_file(command);
  if (!file) return "exact";
  const Result<std::string> text = read_file(*file, size_t{16} << 20);
  if (!text.ok()) return "exact";
  const auto value = decode_json("job.toml", [&] {
    const toml::table table = toml::parse(*text);
    return table["training"]["numerics"].value_or(std::string("exact"));
  });
  std::string numerics = value.ok() ? *value : "exact";
  for (const std::string& word :
       command) {  // --set overrides; the last one wins, as in the trainer
    constexpr std::string_view kOverride = "training.numerics=";
    const size_t at = word.find(kOverride);
    if (at == 0 || word.starts_with("--set=")) {
      if (at != std::string::npos) numerics = word.substr(at + kOverride.size());
    }
  }
  // Anything wrong in the file or in a value is the trainer's to say.
  return numerics.find("fp32") != std::string::npos ? "fp32" : "exact";
}

std::map<std::string, std::string> inheritable(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> kept;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string name = entry.substr(0, equals);
    const bool of_a_launch = name.starts_with("OMPI_") || name.starts_with("PMIX_") ||
                             name.ends_with("_VISIBLE_DEVICES") ||
                             name == "FLEXTRAIN_CONTROL_DIR" || name == "FLEXTRAIN_LAUNCH_MAP" ||
                             name == "FLEXTRAIN_AGENT";
    if (is_slurm_variable(name) || name.starts_with("SBATCH_") || of_a_launch) continue;
    if (entry.size() > kMaxValue || !valid_utf8(entry)) continue;
    kept[name] = entry.substr(equals + 1);
  }
  return kept;
}

protocol::RegisterRequest base_registration(const SlurmJob& job,
                                            const std::vector<std::string>& fingerprint_command,
                                            const std::string& notice_address) {
  protocol::RegisterRequest request;
  request.role = protocol::AgentRole::kBase;
  request.allocations = job.allocations;
  request.agent_version = FLEXTRAIN_VERSION;
  request.fingerprint_command = fingerprint_command;
  request.agent_path = own_path().value_or("flextrain-agent");
  std::error_code ignored;
  request.work_dir = std::filesystem::current_path(ignored).string();
  request.environment = inheritable(own_environment());
  if (!notice_address.empty()) {
    request.environment[protocol::kNoticeAddressVariable] = notice_address;
  }
  request.rlimits = own_limits();
  request.umask = own_umask();
  return request;
}

}  // namespace flextrain::agent
