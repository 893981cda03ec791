// SPDX-License-Identifier: MIT
// The same bits for every layout and every chain of restarts.
#include "tests/trainer/run/trainer_fixture.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

struct Layout {
  const char* name;
  int ranks, pp, dp;
  const char* more;
};

std::string layout_arguments(const Layout& layout) {
  return fmt::format("--set parallel.pipeline_parallel={} --set parallel.data_parallel={} {}",
                     layout.pp, layout.dp, layout.more);
}

TEST_F(TrainerTest, ExactIsEqualForEveryLayout) {
  ASSERT_EQ(train("straight", 0), 0) << output_;
  const std::string expected = digest("straight");
  const Layout layouts[] = {
      {"pp2", 2, 2, 1, ""},
      {"pp3", 3, 3, 1, ""},
      {"pp5", 5, 5, 1, ""},
      {"dp2", 2, 1, 2, ""},
      {"dp3", 3, 1, 3, ""},
      {"pp2dp2", 4, 2, 2, ""},
      {"gpipe", 2, 2, 1, "--set 'parallel.schedule=\"gpipe\"'"},
      {"interleaved", 2, 2, 1, "--set parallel.virtual_stages=2"},
      {"vshape", 3, 3, 1, "--set 'parallel.schedule=\"v-shape\"'"},
  };
  for (const Layout& layout : layouts) {
    ASSERT_EQ(train(layout.name, layout.ranks, layout_arguments(layout)), 0)
        << layout.name << ": " << output_;
    EXPECT_EQ(losses(layout.name), losses("straight")) << layout.name;
    EXPECT_EQ(digest(layout.name), expected) << layout.name;
  }
}

TEST_F(TrainerTest, Fp32IsEqualAcrossPipelineDegrees) {
  const std::string fp32 = "--set training.numerics=fp32";
  ASSERT_EQ(train("one", 0, fp32), 0) << output_;
  ASSERT_EQ(train("three", 3, fp32), 0) << output_;
  EXPECT_EQ(losses("one"), losses("three"));
  EXPECT_EQ(digest("one"), digest("three"));
}

TEST_F(TrainerTest, ChainOfFourLayoutsIsTheStraightRun) {
  const std::string steps = "--set training.steps=40 ";
  ASSERT_EQ(train("straight", 0, steps), 0) << output_;
  const Layout chain[] = {
      {"pp1", 1, 1, 1, ""}, {"pp3", 3, 3, 1, ""}, {"pp2dp2", 4, 2, 2, ""}, {"pp5", 5, 5, 1, ""}};
  write_job(path("chain"));
  for (const Layout& layout : chain) {
    const bool last = layout.pp == 5;
    const int64_t before = last_step("chain");
    ChildProcess child(path("chain"), mpirun(layout.ranks) + " train job.toml " + steps +
                                          layout_arguments(layout) +
                                          (last ? "" : " --set output.min_step_seconds=0.1"));
    if (last) {
      ASSERT_EQ(child.wait(kDeadline), 0) << child.output();
      continue;
    }
    ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("chain") >= before + 5; }))
        << child.output();
    child.signal(SIGUSR1);
    ASSERT_EQ(child.wait(kDeadline), 85) << layout.name << ": " << child.output();
    ASSERT_LT(last_step("chain"), 40);
  }
  EXPECT_EQ(losses("chain"), losses("straight"));
  EXPECT_EQ(digest("chain"), digest("straight"));
}

// The next run of a job has a scale table before it has measured anything itself: this one never
// does.
TEST_F(TrainerTest, TheNextRunOfAJobBeginsWithTheTableOfTheLast) {
  const std::string control = path("control");
  const auto run_with_bounds = [&](const std::string& folder, const std::string& settings) {
    std::filesystem::remove_all(control);
    ASSERT_TRUE(make_directories(control).ok());
    ASSERT_TRUE(write_file_atomically(control + "/request.json",
                                      R"({"max_gpus": 4, "elastic_mode": "dp+pp",
                                          "device_type": "sim", "memory_limit_bytes": 0})")
                    .ok());
    ::setenv("FLEXTRAIN_CONTROL_DIR", control.c_str(), 1);
    const int code = train(folder, 2, settings);
    ::unsetenv("FLEXTRAIN_CONTROL_DIR");
    ASSERT_EQ(code, 0) << output_;
  };
  run_with_bounds("job", "");
  EXPECT_THAT(output_, testing::Not(HasSubstr("begins with the profile of an earlier run")));
  const auto first = parse_json(*read_file(control + "/scale_table.json"), "table");
  ASSERT_TRUE(first.ok());
  run_with_bounds("job", "--set training.steps=12 --set output.profile_steps=0");
  EXPECT_THAT(output_, HasSubstr("begins with the profile of an earlier run"));
  const auto again = parse_json(*read_file(control + "/scale_table.json"), "table");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)["measured_gpus"], 2);
  EXPECT_EQ((*again)["entries"].size(), (*first)["entries"].size());
  // In another folder it is another job.
  run_with_bounds("other", "--set output.profile_steps=0");
  EXPECT_FALSE(std::filesystem::exists(control + "/scale_table.json"));
}

// The Plan comes from the agent, as a file; its reports go back the same way.
TEST_F(TrainerTest, AgentContract) {
  write_job(path("job"));
  const std::string control = path("control");
  ASSERT_TRUE(make_directories(control).ok());
  ASSERT_EQ(run("job", 0, fmt::format("plan job.toml --gpus 2 -o {}/plan.json", control)), 0)
      << output_;
  ASSERT_TRUE(write_file_atomically(control + "/request.json",
                                    R"({"max_gpus": 4, "elastic_mode": "dp+pp",
                                        "device_type": "sim", "memory_limit_bytes": 0})")
                  .ok());
  ::setenv("FLEXTRAIN_CONTROL_DIR", control.c_str(), 1);
  const int code = train("job", 2, "--set checkpoint.every_steps=5");
  ::unsetenv("FLEXTRAIN_CONTROL_DIR");
  ASSERT_EQ(code, 0) << output_;
  const auto progress = parse_json(*read_file(control + "/progress.json"), "progress");
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ((*progress)["step"], 8);
  EXPECT_EQ((*progress)["total_steps"], 8);
  EXPECT_EQ((*progress)["consumed_samples"], 96);
  EXPECT_EQ((*progress)["gpus"], 2);
  const auto plan = parse_json(*read_file(control + "/plan.json"), "plan");
  EXPECT_EQ((*progress)["plan_id"], (*plan)["id"]);
  const std::string fingerprint = *read_file(control + "/fingerprint");
  EXPECT_THAT(fingerprint, HasSubstr("cpu;"));
  // A companion asks the program for the same line.
  ASSERT_EQ(run("job", 0, "fingerprint job.toml"), 0);
  EXPECT_EQ(output_, fingerprint);
  const auto table = parse_json(*read_file(control + "/scale_table.json"), "table");
  ASSERT_TRUE(table.ok());
  EXPECT_GE((*table)["entries"].size(), 3u);
  EXPECT_EQ((*table)["measured_gpus"], 2);
  EXPECT_TRUE(std::filesystem::exists(control + "/profile.json"));
  std::ifstream phases(control + "/phases.jsonl");
  std::vector<std::string> names;
  for (std::string line; std::getline(phases, line);) {
    names.push_back((*parse_json(line, "phase"))["phase"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"preparing", "init", "load", "first_step", "saving",
                                             "save", "saving", "save", "stop"}));
  // The trace has a row per rank and events that a viewer can read.
  const auto trace = parse_json(*read_file(path("job/trace.json")), "trace");
  ASSERT_TRUE(trace.ok());
  std::map<int, int> events;
  for (const Json& event : (*trace)["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"].get<double>(), 0);
    ++events[event["tid"].get<int>()];
  }
  EXPECT_EQ(events.size(), 2u);
  EXPECT_GE(events[0], 24);  // 12 forwards, 12 backwards and more
  // What is in use: more between a Forward and its Backward, at the end what is held all the time.
  std::map<int, int64_t> begins, peak, last;
  for (const Json& event : (*trace)["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int rank = event["tid"];
    const int64_t before = event["args"]["memory_before"], after = event["args"]["memory_after"];
    if (!begins.contains(rank)) begins[rank] = before;
    EXPECT_TRUE(!last.contains(rank) || last[rank] == before);
    last[rank] = after;
    peak[rank] = std::max(peak[rank], after);
  }
  for (const int rank : {0, 1}) {
    EXPECT_GT(begins[rank], 0);
    EXPECT_EQ(last[rank], begins[rank]);
    EXPECT_GT(peak[rank], begins[rank]);
  }
}

TEST_F(TrainerTest, ReshardShowsAndRecordsTheMapping) {
  ASSERT_EQ(train("job", 0), 0) << output_;
  const std::string before = digest("job");
  ASSERT_EQ(run("job", 0, "reshard checkpoints --pp 2 --dp 2 --dry-run"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("head       ranks 0 -> 1,3"));
  ASSERT_EQ(run("job", 0, "reshard checkpoints --pp 3"), 0) << output_;
  EXPECT_EQ(digest("job"), before);
  ASSERT_EQ(run("job", 0, "reshard checkpoints --pp 2 --dry-run"), 0);
  EXPECT_THAT(output_, HasSubstr("head       ranks 2 -> 1"));
  EXPECT_EQ(run("job", 0, "reshard checkpoints --pp 8 --dry-run"),
            0);  // some stages without a layer
  EXPECT_EQ(run("job", 0, "reshard checkpoints --pp 1000000"), 78);
  EXPECT_EQ(run("job", 0, "reshard checkpoints"), 78);
  // The recorded Plan binds nobody: it loads under any other.
  ASSERT_EQ(train("job", 2, "--set training.steps=9"), 0) << output_;
}

}  // namespace
}  // namespace flextrain::trainer
