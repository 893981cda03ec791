// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "tests/trainer/temp_folder.h"
#include "trainer/run/control_dir.h"
#include "trainer/run/exit_code.h"
#include "trainer/run/metrics_file.h"
#include "trainer/run/progress_line.h"
#include "trainer/run/trace_file.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

class ReportFiles : public TempFolder {};

TEST_F(ReportFiles, MetricsKeepWhatTheCheckpointHas) {
  EXPECT_EQ(split_metrics("", 5).kept, "");
  EXPECT_EQ(split_metrics("", 5).undone, "");
  const SplitMetrics steps = split_metrics("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", 2);
  EXPECT_EQ(steps.kept, "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(steps.undone, "{\"step\":3}\n");
  const SplitMetrics broken =
      split_metrics("{\"step\":1}\ngarbage\n[]\n{\"step\":\"x\"}\n{\"step\":2}", 9);
  EXPECT_EQ(broken.kept, "{\"step\":1}\n");
  EXPECT_EQ(broken.undone, "garbage\n[]\n{\"step\":\"x\"}\n{\"step\":2}\n");
}

TEST_F(ReportFiles, MetricsAppendAcrossRestarts) {
  const std::string file = path("metrics.jsonl");
  StepMetrics metrics;
  {
    auto out = MetricsFile::open(file, 0);
    ASSERT_TRUE(out.ok());
    for (metrics.step = 1; metrics.step <= 3; ++metrics.step) {
      metrics.loss = 0.1 * static_cast<double>(metrics.step);
      ASSERT_TRUE(out->append(metrics).ok());
    }
  }
  auto out = MetricsFile::open(file, 2);
  ASSERT_TRUE(out.ok());
  metrics.step = 3;
  metrics.loss = 2.5;
  metrics.eval_loss = 1.25;
  ASSERT_TRUE(out->append(metrics).ok());
  const std::string text = *read_file(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("\"loss_hex\":\"0x1.999999999999ap-4\""));
  EXPECT_THAT(text, HasSubstr("\"eval_loss\":1.25"));
  EXPECT_THAT(text, HasSubstr("\"loss\":2.5"));
  EXPECT_THAT(*read_file(file + ".undone"), HasSubstr("\"step\":3,"));
}

TEST_F(ReportFiles, ProgressTextIsForPeople) {
  EXPECT_EQ(progress_text({120, 300, 4.32104, 12345.6, 0.5, 4}),
            "step 120/300  loss 4.3210  12346 tokens/s  ETA 1:30  GPUs 4");
  EXPECT_EQ(duration_text(7), "0:07");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(-1), "0:00");
}

TEST_F(ReportFiles, ControlDirReadsAndRefuses) {
  ControlDir control(path(""));
  ASSERT_TRUE(control.plan().ok());
  EXPECT_FALSE(control.plan()->has_value());
  EXPECT_FALSE(control.request()->has_value());
  ASSERT_TRUE(write_file_atomically(path("plan.json"), "{}").ok());
  EXPECT_FALSE(control.plan().ok());
  for (const char* bad :
       {"", "[]", "{}", R"({"max_gpus": 0, "elastic_mode": "pp"})",
        R"({"max_gpus": 4, "elastic_mode": "tp"})", R"({"max_gpus": "4", "elastic_mode": "pp"})"}) {
    EXPECT_FALSE(elastic_bounds_from_text(bad).ok()) << bad;
  }
  const auto bounds = elastic_bounds_from_text(R"({"max_gpus": 4, "elastic_mode": "dp+pp"})");
  ASSERT_TRUE(bounds.ok());
  EXPECT_EQ(bounds->max_gpus, 4);
}

TEST_F(ReportFiles, NoControlDirMeansNoFiles) {
  ControlDir control("");
  control.write_fingerprint("x");
  control.write_progress({}, true);
  control.mark("init");
  EXPECT_FALSE(control.plan()->has_value());
  EXPECT_TRUE(std::filesystem::is_empty(path("")));
}

TEST_F(ReportFiles, ProgressIsThrottledButTheEndIsWritten) {
  ControlDir control(path(""));
  Progress progress;
  progress.step = 1;
  control.write_progress(progress, false);
  progress.step = 2;
  control.write_progress(progress, false);
  EXPECT_THAT(*read_file(path("progress.json")), HasSubstr("\"step\":1,"));
  progress.step = 3;
  control.write_progress(progress, true);
  EXPECT_THAT(*read_file(path("progress.json")), HasSubstr("\"step\":3,"));
}

TEST(ExitCodes, FollowTheContract) {
  EXPECT_EQ(exit_code_for(invalid_argument("x")), 78);
  EXPECT_EQ(exit_code_for(not_found("x")), 78);
  EXPECT_EQ(exit_code_for(failed_precondition("x")), 78);
  EXPECT_EQ(exit_code_for(internal_error("x")), 1);
  EXPECT_EQ(exit_code_for(resource_exhausted("x")), 1);
  EXPECT_EQ(exit_code_for(aborted("x")), 1);
}

}  // namespace
}  // namespace flextrain::trainer
