// SPDX-License-Identifier: MIT
// What a user asked for with --elastic and --elastic-max, and its token in a job's admin_comment
// (docs/slurm-plugins.md). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace flextrain::protocol {

enum class ElasticMode { kPp, kDpPp };
std::string_view elastic_mode_name(ElasticMode mode);           // "pp", "dp+pp"
Result<ElasticMode> parse_elastic_mode(std::string_view text);  // "" = "dp+pp", the default

struct ElasticMax {  // "--elastic-max=16" (GPUs) or "4x" (times the request); default 4x
  bool is_factor = true;
  double value = 4;
};
Result<ElasticMax> parse_elastic_max(std::string_view text);

struct ElasticRequest {
  ElasticMode mode = ElasticMode::kDpPp;
  ElasticMax max;
};
// GPUs the job may hold in all when its base holds `base_gpus`.
int max_gpus(const ElasticRequest& request, int base_gpus);

// The tagged token "flextrain(mode=dp+pp,max=4x)". with_token keeps whatever else stands in the
// comment and replaces an older token; from_comment finds it, nullopt when there is none, an error
// when it is there but malformed.
std::string elastic_token(const ElasticRequest& request);
std::string with_token(std::string_view admin_comment, const ElasticRequest& request);
Result<std::optional<ElasticRequest>> from_comment(std::string_view admin_comment);
// The token a companion carries: "flextrain(companion-of=123,intent=…)".
std::string companion_token(uint32_t base_job_id, std::string_view intent_id);
struct CompanionTag {
  uint32_t base_job_id = 0;
  std::string intent_id;
};
std::optional<CompanionTag> companion_from_comment(std::string_view admin_comment);

}  // namespace flextrain::protocol
