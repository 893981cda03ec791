// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/submit/elastic_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

SiteSettings site_on() {
  SiteSettings site;
  site.on = true;
  return site;
}

Submission elastic_job() {
  Submission job;
  job.elastic = "dp+pp";
  job.batch = true;
  job.gpus = 8;
  job.partitions = {"main"};
  return job;
}

TEST(CheckSubmission, LeavesOtherJobsAlone) {
  Submission job;
  job.batch = true;
  job.admin_comment = "flextrain(broken";
  const Verdict verdict = check_submission(job, site_on());
  EXPECT_THAT(verdict.refusal, IsEmpty());
  EXPECT_FALSE(verdict.admin_comment.has_value());
  EXPECT_FALSE(verdict.wake);
  job.gpus = 1;
  EXPECT_TRUE(check_submission(job, site_on()).wake);  // it may need expanded GPUs
}

TEST(CheckSubmission, WritesTheToken) {
  Submission job = elastic_job();
  job.admin_comment = "ticket 7";
  Verdict verdict = check_submission(job, site_on());
  EXPECT_THAT(verdict.refusal, IsEmpty());
  EXPECT_EQ(verdict.admin_comment, "ticket 7 flextrain(mode=dp+pp,max=4x)");
  EXPECT_THAT(verdict.note, IsEmpty());
  EXPECT_TRUE(verdict.wake);
  job.elastic = "";
  job.elastic_max = "8";  // as many as it has: allowed, it just never grows
  EXPECT_EQ(check_submission(job, site_on()).admin_comment, "ticket 7 flextrain(mode=dp+pp,max=8)");
  job.elastic = "pp";
  job.elastic_max = "2x";
  EXPECT_EQ(check_submission(job, site_on()).admin_comment, "ticket 7 flextrain(mode=pp,max=2x)");
}

struct Refusal {
  const char* what;
  void (*change)(Submission&);
  const char* line;
};

TEST(CheckSubmission, RefusesInOneLine) {
  SiteSettings site = site_on();
  site.config.partitions = {"main", "big"};
  for (const Refusal& r : {
           Refusal{"mode", [](Submission& j) { j.elastic = "tp"; },
                   "unknown mode; use pp or dp+pp"},
           Refusal{"max", [](Submission& j) { j.elastic_max = "lots"; }, "not a number"},
           Refusal{"low max", [](Submission& j) { j.elastic_max = "7"; },
                   "--elastic-max=7 is below the 8 GPUs that the job asks for"},
           Refusal{"het", [](Submission& j) { j.heterogeneous = true; },
                   "a heterogeneous job cannot be elastic"},
           Refusal{"srun", [](Submission& j) { j.batch = false; }, "submit it with sbatch"},
           Refusal{"no GPUs", [](Submission& j) { j.gpus = 0; }, "an elastic job needs GPUs"},
           Refusal{"partition",
                   [](Submission& j) {
                     j.partitions = {"x", "y"};
                   },
                   "elasticity is off in partition x, y; it is on in main, big"},
           Refusal{"max alone",
                   [](Submission& j) {
                     j.elastic.reset();
                     j.elastic_max = "4x";
                   },
                   "--elastic-max needs --elastic"},
       }) {
    Submission job = elastic_job();
    r.change(job);
    const Verdict verdict = check_submission(job, site);
    EXPECT_THAT(verdict.refusal, StartsWith("flextrain: ")) << r.what;
    EXPECT_THAT(verdict.refusal, HasSubstr(r.line)) << r.what;
    EXPECT_EQ(verdict.refusal.find('\n'), std::string::npos) << r.what;
    EXPECT_FALSE(verdict.admin_comment.has_value()) << r.what;
    EXPECT_FALSE(verdict.wake) << r.what;
  }
}

TEST(CheckSubmission, OneElasticPartitionOfSeveralIsEnough) {
  SiteSettings site = site_on();
  site.config.partitions = {"big"};
  Submission job = elastic_job();
  job.partitions = {"main", "big"};
  EXPECT_THAT(check_submission(job, site).refusal, IsEmpty());
  job.partitions = {};  // not known here: the controller looks again where the job runs
  EXPECT_THAT(check_submission(job, site).refusal, IsEmpty());
}

// Scripts stay valid while an administrator mends flextrain.conf.
TEST(CheckSubmission, WhereElasticityIsOffTheJobRunsAtItsSizeAndSaysSo) {
  SiteSettings site;
  site.off_reason = "flextrain.conf:3: bad";
  const Verdict verdict = check_submission(elastic_job(), site);
  EXPECT_THAT(verdict.refusal, IsEmpty());
  EXPECT_TRUE(verdict.admin_comment.has_value());  // elastic once it is on again
  EXPECT_EQ(verdict.note,
            "flextrain: elasticity is off (flextrain.conf:3: bad); the job runs at the size asked "
            "for");
}

TEST(CheckSubmission, CompanionsDoNotWakeTheirOwnController) {
  Submission job;
  job.batch = true;
  job.gpus = 4;
  job.admin_comment = "flextrain(companion-of=3,intent=a)";
  job.privileged = true;
  EXPECT_FALSE(check_submission(job, site_on()).wake);
  job.privileged = false;  // anybody may write that; Slurm refuses it later
  EXPECT_TRUE(check_submission(job, site_on()).wake);
}

TEST(KeepToken, AddsWhatAnAdministratorsTextWouldLose) {
  const std::string token = "flextrain(mode=pp,max=2x)";
  EXPECT_EQ(keep_token("new text", token), "new text " + token);
  EXPECT_EQ(keep_token("", token), token);
  EXPECT_EQ(keep_token("x flextrain(mode=pp", token), "x " + token);          // mends a broken one
  EXPECT_EQ(keep_token("flextrain(mode=dp+pp,max=8)", token), std::nullopt);  // his decision
  EXPECT_EQ(keep_token("new text", ""), std::nullopt);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
