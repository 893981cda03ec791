// SPDX-License-Identifier: MIT
// Schedules made from a profile, models with multi-token prediction, and what `plan` says of
// profiles and caps that cannot work.
#include <set>

#include "tests/trainer/run/trainer_fixture.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

TEST_F(TrainerTest, MtpModelsTrainLikeTheRest) {
  const std::string mtp = "--set model.mtp_num_layers=2 --set model.layers=4 ";
  ASSERT_EQ(train("straight", 0, mtp), 0) << output_;
  // On three stages, then from the sixth step on six, of which the last has a loss alone.
  ASSERT_EQ(train("chain", 3, mtp + "--set checkpoint.every_steps=6"), 0) << output_;
  EXPECT_EQ(digest("chain"), digest("straight"));
  std::filesystem::remove_all(path("chain/checkpoints/step-8"));
  ASSERT_EQ(run("chain", 0, "reshard checkpoints --pp 6"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("mtp 2 loss ranks 2 -> 5"));
  ASSERT_EQ(train("chain", 6, mtp), 0) << output_;
  EXPECT_EQ(digest("chain"), digest("straight"));
  EXPECT_EQ(losses("chain"), losses("straight"));
  const std::vector<Json> lines = metrics("straight"), other = metrics("chain");
  ASSERT_EQ(lines.size(), 8u);
  for (size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i]["mtp_losses"].size(), 2u);
    EXPECT_EQ(lines[i]["mtp_losses_hex"], other[i]["mtp_losses_hex"]);
  }
  EXPECT_LT(lines.back()["mtp_losses"][0], lines.front()["mtp_losses"][0]);
  EXPECT_LT(lines.back()["mtp_losses"][1], lines.front()["mtp_losses"][1]);
  // Another depth is another model.
  EXPECT_EQ(train("chain", 0, "--set model.layers=4 --set model.mtp_num_layers=1"), 78) << output_;
  EXPECT_THAT(output_, HasSubstr("model.mtp_num_layers is 1 here but 2 in the checkpoint"));
}

TEST_F(TrainerTest, SearchedScheduleIsMadeFromTheProfileAndShownBesideIt) {
  ASSERT_EQ(train("straight", 0), 0) << output_;
  const std::string searched =
      "--set parallel.schedule=searched --set parallel.memory_cap_bytes=100000000 ";
  // The first steps are profiled under another schedule, then all ranks change; the next start
  // finds the profile.
  ASSERT_EQ(train("job", 3, searched + "--set checkpoint.every_steps=6"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("searched schedule: makespan"));
  EXPECT_THAT(output_, HasSubstr("memory-min had"));
  EXPECT_NE(metrics("job").front()["plan_id"], metrics("job").back()["plan_id"]);
  EXPECT_EQ(digest("job"), digest("straight"));
  std::filesystem::remove_all(path("job/checkpoints/step-8"));
  ASSERT_EQ(train("job", 3, searched), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("explicit"));
  EXPECT_EQ(losses("job"), losses("straight"));
  EXPECT_EQ(digest("job"), digest("straight"));

  ASSERT_EQ(run("job", 0, "plan job.toml --show --measured --show-files drawn"), 0) << output_;
  const size_t predicted = output_.find("predicted\n  0 |"), measured = output_.find("measured, ");
  ASSERT_NE(predicted, std::string::npos) << output_;
  ASSERT_NE(measured, std::string::npos) << output_;
  EXPECT_LT(predicted, measured);
  EXPECT_NE(output_.find("\n  2 |", measured), std::string::npos) << output_;
  const std::string svg = *read_file(path("job/drawn.svg"));
  EXPECT_THAT(svg, HasSubstr(": predicted</text>"));
  EXPECT_THAT(svg, HasSubstr(": measured</text>"));
  const auto trace = parse_json(*read_file(path("job/drawn.trace.json")), "trace");
  ASSERT_TRUE(trace.ok());
  std::map<int, int> processes;
  for (const Json& event : (*trace)["traceEvents"]) ++processes[event["pid"].get<int>()];
  EXPECT_EQ(processes.size(), 2u);

  ASSERT_EQ(run("job", 0, "plan job.toml --show --measured job.toml"), 78);
  EXPECT_EQ(run("job", 0, "plan job.toml --show"), 78) << "neither --gpus nor --measured";
}

// Which schedule, recomputation and layout a size gets is a matter of measured times; the bits are
// not. The Plans are passed as an agent passes them when the job grows or shrinks.
TEST_F(TrainerTest, AutoFollowsTheTableFromSizeToSize) {
  ASSERT_EQ(train("straight", 0), 0) << output_;
  const std::string open =
      "--set parallel.schedule=auto --set parallel.virtual_stages=0 --set parallel.recompute=auto "
      "--set checkpoint.every_steps=3 --set checkpoint.keep=10 ";
  ASSERT_EQ(train("job", 3, open), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("auto schedule: "));
  EXPECT_EQ(digest("job"), digest("straight"));
  const auto table = parse_json(*read_file(path("job/scale_table.json")), "table");
  ASSERT_TRUE(table.ok());
  Json six;
  for (const Json& entry : (*table)["entries"]) {
    if (entry["gpus"] == 6) six = entry["plan"];
  }
  ASSERT_TRUE(six.is_object()) << table->dump();
  ASSERT_TRUE(write_file_atomically(path("job/six.json"), six.dump()).ok());
  ASSERT_EQ(run("job", 0,
                "plan job.toml --gpus 3 --set parallel.schedule=v-shape "
                "--set parallel.recompute=full -o three.json"),
            0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("2 virtual stages, full recompute, v-shape"));
  // From step 3 on as the table has it for six, from step 6 on on three again, otherwise.
  for (const char* step : {"step-6", "step-8"}) {
    std::filesystem::remove_all(path("job/checkpoints/") + step);
  }
  ASSERT_EQ(train("job", 6, open + "--plan six.json"), 0) << output_;
  EXPECT_EQ(digest("job"), digest("straight"));
  std::filesystem::remove_all(path("job/checkpoints/step-8"));
  ASSERT_EQ(train("job", 3, open + "--plan three.json"), 0) << output_;
  EXPECT_EQ(digest("job"), digest("straight"));
  EXPECT_EQ(losses("job"), losses("straight"));
  std::set<std::string> plans;
  for (const Json& line : metrics("job")) plans.insert(line["plan_id"]);
  EXPECT_GE(plans.size(), 3u);
}

// A profile of the fixture's seven layers with one value replaced; "" = all times are 0.
std::string profile_with(const std::string& forward) {
  std::string layers;
  const bool zero = forward.empty();
  for (int layer = 0; layer < 9; ++layer) {
    layers += fmt::format(
        R"({}{{"forward":{},"backward":{},"static_bytes":1000,"activation_bytes":100}})",
        layer > 0 ? "," : "",
        zero         ? "0"
        : layer == 4 ? forward
                     : "0.01",
        zero ? "0" : "0.02");
  }
  return fmt::format(
      R"({{"layers":[{}],"transfer_seconds":0.001,"reduce_seconds":0,"optimizer_seconds":0.01,)"
      R"("step_seconds":0.5,"steps":3,"pipeline_parallel":1,"data_parallel":1,"virtual_stages":1}})",
      layers);
}

TEST_F(TrainerTest, PlanRefusesWhatCannotWorkInOneLine) {
  write_job(path("job"));
  const struct {
    std::string forward, arguments, message;
  } cases[] = {
      {"-1", "--gpus 3", "'forward'"},
      {"", "--gpus 3", "all layers took 0 s"},
      {"NaN", "--gpus 3", "profile.json"},
      {"1e999", "--gpus 3", "profile.json"},
      {"0.01", "--gpus 3 --set parallel.schedule=searched --set parallel.memory_cap_bytes=50",
       "parallel.memory_cap_bytes (50) is too small for every schedule: stage 0 of pipeline 0 "
       "holds"},
      {"0.01", "--gpus 3 --set parallel.schedule=searched --set parallel.memory_cap_bytes=3200",
       "parallel.memory_cap_bytes (3200) is too small for every schedule"},
      {"0.01",
       "--gpus 5 --set parallel.pipeline_parallel=5 --set parallel.virtual_stages=2 "
       "--set parallel.no_ops=false",
       "No-Ops are forbidden"},
      {"0.01", "--gpus 3 --set parallel.schedule=explicit", "parallel.schedule must be"},
  };
  for (const auto& c : cases) {
    ASSERT_TRUE(write_file_atomically(path("job/profile.json"), profile_with(c.forward)).ok());
    EXPECT_EQ(run("job", 0, "plan job.toml " + c.arguments), 78) << c.message << "\n" << output_;
    EXPECT_THAT(output_, HasSubstr(c.message));
    EXPECT_EQ(std::count(output_.begin(), output_.end(), '\n'), 1) << output_;
  }
  // The same with enough memory works.
  ASSERT_TRUE(write_file_atomically(path("job/profile.json"), profile_with("0.01")).ok());
  EXPECT_EQ(run("job", 0,
                "plan job.toml --gpus 3 --set parallel.schedule=searched "
                "--set parallel.memory_cap_bytes=4700"),
            0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("searched schedule: makespan"));
}

}  // namespace
}  // namespace flextrain::trainer
