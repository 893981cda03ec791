// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/sched/token_registry.h"

#include "base/text.h"
#include "protocol/elastic_request.h"

namespace flextrain::slurm_plugin {

void TokenRegistry::update(const ClusterView& view) {
  std::unordered_map<uint32_t, std::string> tokens;
  for (const JobRecord& job : view.jobs) {
    if (job.state == JobState::kEnded || job.admin_comment.empty()) continue;
    const auto request = protocol::from_comment(job.admin_comment);
    if (!request.ok() || !request->has_value()) continue;
    std::string token = protocol::elastic_token(**request);
    if (job.array_job_id != 0) tokens[job.array_job_id] = token;
    tokens[job.job_id] = std::move(token);
  }
  const std::lock_guard lock(mutex_);
  tokens_.swap(tokens);
}

std::string TokenRegistry::token_of(std::string_view job) const {
  const Result<int64_t> id = parse_int(job.substr(0, job.find_first_of("_+")));
  if (!id.ok() || *id <= 0 || *id > UINT32_MAX) return "";
  const std::lock_guard lock(mutex_);
  const auto found = tokens_.find(static_cast<uint32_t>(*id));
  return found == tokens_.end() ? "" : found->second;
}

}  // namespace flextrain::slurm_plugin
