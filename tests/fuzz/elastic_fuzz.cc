// SPDX-License-Identifier: GPL-2.0-or-later
// What a user's command may hand to job_submit: line 1 the value of --elastic, line 2 that of
// --elastic-max ("-" for none), the rest the admin_comment. A request that is taken is found again.
#include "protocol/elastic_request.h"
#include "slurm_plugin/submit/elastic_check.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  std::string_view comment = fuzz::text_of(data, size);
  slurm_plugin::Submission job;
  const auto value = [&]() -> std::optional<std::string> {
    const std::string_view line = fuzz::take(comment);
    return line == "-" ? std::nullopt : std::optional<std::string>(line);
  };
  job.elastic = value();
  job.elastic_max = value();
  job.batch = true;
  job.gpus = 4;
  job.partitions = {"gpu"};
  job.admin_comment = comment;
  job.privileged = size % 2 == 0;
  slurm_plugin::SiteSettings site;
  site.on = true;
  const auto verdict = slurm_plugin::check_submission(job, site);
  if (verdict.admin_comment) {
    const auto found = protocol::from_comment(*verdict.admin_comment);
    FUZZ_REQUIRE(found.ok() && found->has_value());
    const int most = protocol::max_gpus(**found, job.gpus);
    FUZZ_REQUIRE(most >= job.gpus && most <= 1'000'000);
    FUZZ_REQUIRE(protocol::from_comment(protocol::elastic_token(**found)).ok());
    (void)slurm_plugin::keep_token(std::string(comment), *verdict.admin_comment);
  }
  (void)protocol::from_comment(comment);
  if (const auto tag = protocol::companion_from_comment(comment)) {
    FUZZ_REQUIRE(tag->base_job_id > 0);
    const auto again = protocol::companion_from_comment(
        protocol::companion_token(tag->base_job_id, tag->intent_id));
    FUZZ_REQUIRE(again && again->base_job_id == tag->base_job_id);
  }
  return 0;
}
