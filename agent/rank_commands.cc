// SPDX-License-Identifier: MIT
#include "agent/rank_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/control_dir.h"
#include "agent/launch_map.h"
#include "agent/process.h"
#include "agent/slurm_job.h"
#include "agent/words.h"
#include "base/text.h"

namespace flextrain::agent {
namespace {

constexpr const char* kDeviceVariables[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
constexpr int kFailed = 71;  // sysexits(3) EX_OSERR

int fail(std::string_view who, const Status& status) {
  fmt::print(stderr, "flextrain-agent {}: {}\n", who, status.to_string());
  return kFailed;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The step's srun sets its own; ours describe another job.
void clear_job_environment() {
  for (const std::string& entry : own_environment()) {
    const std::string name = entry.substr(0, entry.find('='));
    if (is_slurm_variable(name)) ::unsetenv(name.c_str());
  }
  for (const char* name : kDeviceVariables) ::unsetenv(name);
}

int exec_words(std::string_view who, const std::vector<std::string>& words) {
  const std::vector<char*> argv = exec_arguments(words);
  ::execvp(argv[0], argv.data());
  return fail(who, not_found("cannot run '{}': {}", words[0], std::strerror(errno)));
}

// --mem=0 and no --exact: the step may use all that its job has on the node.
Result<std::vector<std::string>> srun_words(uint32_t job, const std::string& host) {
  std::vector<std::string> words = {"srun",
                                    fmt::format("--jobid={}", job),
                                    fmt::format("--job-name={}", kRankStepName),
                                    "--nodes=1",
                                    "--ntasks=1",
                                    "--nodelist=" + host,
                                    "--overlap",
                                    "--mem=0",
                                    "--mpi=none",
                                    "--cpu-bind=none",
                                    "--kill-on-bad-exit=1",
                                    "--quiet"};
  ASSIGN_OR_RETURN(const auto more, split_words(environment("FLEXTRAIN_SRUN_ARGS")));
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

int run_rsh(const std::vector<std::string>& words) {
  if (words.size() < 2) return fail("rsh", invalid_argument("usage: rsh HOST COMMAND…"));
  const auto map = LaunchMap::parse(environment("FLEXTRAIN_LAUNCH_MAP"));
  if (!map.ok()) return fail("rsh", map.status());
  const auto owner = map->owner(words[0]);
  if (!owner.ok()) return fail("rsh", owner.status());
  std::string line;  // mpirun quotes for a remote shell already
  for (size_t i = 1; i < words.size(); ++i) line += (i > 1 ? " " : "") + words[i];
  auto step = srun_words(*owner, words[0]);
  if (!step.ok()) return fail("rsh", step.status().with_context("--srun-args"));
  step->insert(step->end(), {"/bin/sh", "-c", line});
  clear_job_environment();
  return exec_words("rsh", *step);
}

int run_rank(const std::vector<std::string>& words) {
  size_t at = 0;
  const bool inside = !words.empty() && words[0] == "--inside";
  if (inside) ++at;
  if (at >= words.size() || words[at] != "--" || at + 1 >= words.size()) {
    return fail("rank", invalid_argument("usage: rank -- COMMAND…"));
  }
  const std::vector<std::string> command(words.begin() + static_cast<long>(at) + 1, words.end());
  const auto rank = parse_int(environment("OMPI_COMM_WORLD_RANK"));
  if (!rank.ok()) return fail("rank", rank.status().with_context("OMPI_COMM_WORLD_RANK"));
  const auto map = LaunchMap::parse(environment("FLEXTRAIN_LAUNCH_MAP"));
  if (!map.ok()) return fail("rank", map.status());
  const auto position = map->find(static_cast<int>(*rank));
  if (!position.ok()) return fail("rank", position.status());

  if (!inside && position->segment.job_id != position->owner) {
    auto step = srun_words(position->segment.job_id, position->segment.host);
    if (!step.ok()) return fail("rank", step.status().with_context("--srun-args"));
    char self[4096];
    const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self);
    if (size <= 0) return fail("rank", internal_error("cannot read /proc/self/exe"));
    step->insert(step->end(),
                 {std::string(self, static_cast<size_t>(size)), "rank", "--inside", "--"});
    step->insert(step->end(), command.begin(), command.end());
    clear_job_environment();
    return exec_words("rank", *step);
  }
  if (const std::string dir = environment("FLEXTRAIN_CONTROL_DIR"); *rank == 0 && !dir.empty()) {
    ControlDir::mark_started(dir);
  }
  if (environment("FLEXTRAIN_BIND_GPUS") == "1") {
    for (const char* name : kDeviceVariables) {
      const std::vector<std::string> devices = split(environment(name), ',');
      const auto index = static_cast<size_t>(position->index);
      if (index < devices.size()) ::setenv(name, devices[index].c_str(), 1);
    }
  }
  return exec_words("rank", command);
}

}  // namespace flextrain::agent
