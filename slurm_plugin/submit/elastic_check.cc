// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/submit/elastic_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/elastic_request.h"

namespace flextrain::slurm_plugin {
namespace {

using protocol::ElasticMax;
using protocol::ElasticRequest;

std::string join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

// "" or why these flags cannot be honoured; fills `request`.
std::string refusal_of(const Submission& job, const SiteSettings& site, ElasticRequest& request) {
  // The client's plugin has checked the values already; a client may lack it, or lie.
  const Result<protocol::ElasticMode> mode = protocol::parse_elastic_mode(*job.elastic);
  if (!mode.ok()) return mode.status().message();
  request.mode = *mode;
  if (job.elastic_max) {
    const Result<ElasticMax> max = protocol::parse_elastic_max(*job.elastic_max);
    if (!max.ok()) return max.status().message();
    request.max = *max;
  }
  if (job.heterogeneous) {
    return "a heterogeneous job cannot be elastic; drop --elastic or submit one component";
  }
  if (!job.batch) return "an elastic job must be a batch job; submit it with sbatch";
  if (job.gpus == 0) {
    return "an elastic job needs GPUs; ask for the ones it starts with, e.g. --gpus-per-node=2";
  }
  if (!request.max.is_factor && request.max.value < job.gpus) {
    return fmt::format("--elastic-max={} is below the {} GPUs that the job asks for",
                       *job.elastic_max, job.gpus);
  }
  const auto is_on = [&](const std::string& name) { return elastic_partition(site.config, name); };
  if (!job.partitions.empty() &&
      std::none_of(job.partitions.begin(), job.partitions.end(), is_on)) {
    return fmt::format("elasticity is off in partition {}; it is on in {}", join(job.partitions),
                       join(site.config.partitions));
  }
  return "";
}

}  // namespace

Verdict check_submission(const Submission& job, const SiteSettings& site) {
  Verdict verdict;
  if (!job.elastic) {
    if (job.elastic_max) verdict.refusal = "flextrain: --elastic-max needs --elastic";
    // A companion is the controller's own submission: it knows.
    const bool companion =
        job.privileged && protocol::companion_from_comment(job.admin_comment).has_value();
    verdict.wake = verdict.refusal.empty() && job.gpus > 0 && !companion;
    return verdict;
  }
  ElasticRequest request;
  if (std::string refusal = refusal_of(job, site, request); !refusal.empty()) {
    verdict.refusal = "flextrain: " + refusal;
    return verdict;
  }
  verdict.admin_comment = protocol::with_token(job.admin_comment, request);
  verdict.wake = true;
  if (!site.on) {
    verdict.note = fmt::format(
        "flextrain: elasticity is off ({}); the job runs at the size asked "
        "for",
        site.off_reason);
  }
  return verdict;
}

std::optional<std::string> keep_token(const std::string& new_comment,
                                      const std::string& known_token) {
  if (known_token.empty()) return std::nullopt;
  const auto present = protocol::from_comment(new_comment);
  if (present.ok() && present->has_value()) return std::nullopt;
  const auto known = protocol::from_comment(known_token);
  if (!known.ok() || !known->has_value()) return std::nullopt;
  return protocol::with_token(new_comment, **known);
}

}  // namespace flextrain::slurm_plugin
