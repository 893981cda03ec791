// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/companion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "protocol/elastic_request.h"
#include "slurm_plugin/controller/fit.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr int64_t kMinute = 60;

// "a*2&b" asks for two nodes with a; a companion is one node.
std::string without_counts(std::string_view features) {
  std::string result;
  for (size_t at = 0; at < features.size(); ++at) {
    if (features[at] != '*') {
      result += features[at];
      continue;
    }
    while (at + 1 < features.size() && std::isdigit(static_cast<unsigned char>(features[at + 1]))) {
      ++at;
    }
  }
  return result;
}

}  // namespace

std::string shell_quote(std::string_view text) {
  std::string quoted = "'";
  for (const char symbol : text) {
    if (symbol == '\'') {
      quoted += "'\\''";
    } else {
      quoted += symbol;
    }
  }
  return quoted + "'";
}

std::string companion_script(const JobRecord& base, const protocol::RegisterRequest& registration,
                             std::string_view intent_id) {
  std::string line = fmt::format(
      "exec {} companion --base-job {} --intent {}",
      shell_quote(registration.agent_path.empty() ? "flextrain-agent" : registration.agent_path),
      base.job_id, shell_quote(intent_id));
  if (!registration.fingerprint_command.empty()) {
    line += " --";
    for (const std::string& word : registration.fingerprint_command)
      line += " " + shell_quote(word);
  }
  return "#!/bin/sh\n" + line + "\n";
}

CompanionRequest make_companion_request(const JobRecord& base,
                                        const protocol::RegisterRequest& registration,
                                        const policy::NodeOffer& offer, std::string_view intent_id,
                                        const ControllerConfig& config, int64_t now) {
  const NodeNeeds needs = needs_of_base(base, config);
  CompanionRequest request;
  request.user_id = base.user_id;
  request.group_id = base.group_id;
  request.name = base.name + "-companion";
  request.account = base.account;
  request.qos = config.companion_qos.empty() ? base.qos : config.companion_qos;
  request.partition = needs.partitions.front();
  request.reservation = base.reservation;
  request.node = offer.node;
  request.features = without_counts(base.features);
  request.gres = base.gres_type.empty() ? fmt::format("gres:gpu:{}", offer.gpus)
                                        : fmt::format("gres:gpu:{}:{}", base.gres_type, offer.gpus);
  request.cpus = std::max(1, static_cast<int>(std::floor(needs.cpus_per_gpu * offer.gpus + 1e-9)));
  request.memory_mib = needs.memory_per_gpu_mib * offer.gpus;
  request.lease_seconds = config.lease_seconds;
  if (base.end_time > now) {
    request.lease_seconds = std::clamp<int64_t>(base.end_time - now, kMinute, config.lease_seconds);
  }
  request.work_dir = registration.work_dir.empty() ? base.work_dir : registration.work_dir;
  request.script = companion_script(base, registration, intent_id);
  request.admin_comment = protocol::companion_token(base.job_id, intent_id);
  request.std_out = config.companion_output;
  for (const auto& [name, value] : registration.environment) {
    // Slurm's own variables of the base would mislead the companion's srun, and SPANK's would make
    // the companion elastic.
    if (name.rfind("SLURM", 0) == 0 || name.rfind("SBATCH_", 0) == 0 ||
        name.rfind("SPANK_", 0) == 0 || name.find('=') != std::string::npos || name.empty()) {
      continue;
    }
    request.environment.push_back(name + "=" + value);
  }
  request.rlimits = registration.rlimits;
  request.umask = registration.umask;
  request.signal_before_end_seconds = static_cast<int>(config.companion_signal_seconds);
  return request;
}

int64_t extended_lease(int64_t now, int64_t start, int64_t lease_end, int64_t cap,
                       const ControllerConfig& config) {
  if (start <= 0 || lease_end <= 0 || lease_end - now >= config.renew_seconds) return 0;
  int64_t seconds = (now + config.lease_seconds - start + kMinute - 1) / kMinute * kMinute;
  if (cap > 0) seconds = std::min(seconds, (cap - start) / kMinute * kMinute);
  return start + seconds > lease_end ? start + seconds : 0;
}

int64_t shortened_lease(int64_t now, int64_t start, int64_t lease_end,
                        const ControllerConfig& config) {
  if (start <= 0) return 0;
  const int64_t seconds = (now + config.lease_seconds - start + kMinute - 1) / kMinute * kMinute;
  const int64_t end = start + std::max(kMinute, seconds);
  return end < lease_end ? end : 0;
}

}  // namespace flextrain::slurm_plugin
