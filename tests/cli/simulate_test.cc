// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/app.h"
#include "tests/cli/fake_environment.h"

namespace flextrain::cli {
namespace {

using ::testing::HasSubstr;

// An elastic job of 32 GPUs alone on 128; a rigid one comes after its end.
constexpr const char* kTrace =
    "id,arrival_s,duration_s,gpus,type,limit_s,u\n"
    "1,0,36000,32,T,90000,0.1\n"
    "2,14400,600,96,T,900,0.9\n";

AppResult simulate(FakeEnvironment& environment, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  return run_sflex(arguments, environment);
}

TEST(Simulate, GrowsIntoIdleGpus) {
  FakeEnvironment environment;
  environment.files["t.csv"] = kTrace;
  const AppResult result =
      simulate(environment, {"t.csv", "--gpus", "128", "--policies", "rigid,recommended", "--csv",
                             "out.csv", "--svg", "out.svg", "--classes"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 elastic and 1 rigid jobs on 128 GPUs"));
  EXPECT_THAT(result.out, HasSubstr("recommended"));
  EXPECT_EQ(environment.shown, 1) << "the bar ends";
  // By hand: grows at 0 to 128 GPUs, 3.4225x with a pause of 180 s: ends at 180 + 36000/3.4225 =
  // 10698.6, which is 0.2972 of 36000.
  EXPECT_THAT(environment.files["out.csv"], HasSubstr("\nrecommended,1,0,all,pool,1,1,0.297"));
  EXPECT_THAT(environment.files["out.csv"], HasSubstr("\nrecommended,1,0,32,pool,1,,0.297"));
  EXPECT_THAT(environment.files["out.svg"], HasSubstr("Job 1: its GPUs"));
}

TEST(Simulate, SettingsOfTheConfiguration) {
  FakeEnvironment environment;
  environment.files["t.csv"] = kTrace;
  const auto nrun = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"t.csv", "--gpus", "128",    "--policies",
                                          "none",  "--csv",  "out.csv"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const AppResult result = simulate(environment, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string& csv = environment.files["out.csv"];
    return csv.substr(csv.find("\nnone,1,0,all,pool,1,1,") + 23, 5);
  };
  EXPECT_EQ(nrun({}), "0.297");
  EXPECT_EQ(nrun({"--set", "MaxGrowth=1"}), "1.000");
  // Refused for its age at 0, which is all the guard knows; a day of ticks is no exception.
  EXPECT_NE(nrun({"--set", "RemainingTimeGuard=yes", "--remaining", "nothing"}), "0.297");
  for (const char* limit : {"UserMaxExpandedGPUs=31", "AccountMaxExpandedGPUs=31",
                            "IdleReserve=0.8", "QuietHours=00:00-23:59"})
    EXPECT_EQ(nrun({"--set", limit}), "1.000") << limit;
  EXPECT_THAT(simulate(environment, {"t.csv", "--gpus", "128", "--set", "IdleReserve=2"}).err,
              HasSubstr("--set IdleReserve=2: 2 is outside 0 … 1"));
  for (const char* wrong :
       {"QueueDepth=1", "Magic=1", "Gate=magic", "GateProbability=x", "GateProbability"})
    EXPECT_EQ(simulate(environment, {"t.csv", "--gpus", "128", "--set", wrong}).exit_code, 2)
        << wrong;
  EXPECT_EQ(simulate(environment, {"t.csv", "--gpus", "128", "--remaining", "all"}).exit_code, 2);
}

// Beside two jobs of 6 GPUs on two nodes of 8, one of 4 waits for the end of the first; in a pool
// it starts at once.
TEST(Simulate, SaysWhatFragmentationCosts) {
  FakeEnvironment environment;
  environment.files["t.csv"] =
      "id,arrival_s,duration_s,gpus,type,limit_s,u\n"
      "1,0,1000,6,T,1000,0.9\n2,0,2000,6,T,2000,0.9\n3,10,500,4,T,500,0.1\n4,20,10,8,T,10,0.9\n";
  const AppResult result =
      simulate(environment, {"t.csv", "--nodes", "2x8", "--policies", "recommended", "--share",
                             "0.5", "--sizes", "any", "--csv", "out.csv"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 elastic and 3 rigid jobs on 2 nodes of 8 GPUs"));
  EXPECT_THAT(result.out, HasSubstr("What fragmentation costs"));
  const std::string& csv = environment.files["out.csv"];
  EXPECT_THAT(csv, HasSubstr("\nrecommended,1,0,all,2x8,1,3,"));
  EXPECT_THAT(csv, HasSubstr("\nrecommended,1,0,all,pool,1,3,"));
  EXPECT_THAT(csv, HasSubstr(",1490.0,")) << "waits 990 s, runs 500";
  EXPECT_THAT(csv, HasSubstr(",500.0,"));
  for (const char* wrong : {"2", "2x", "x8", "0x8", "2x0", "2x8x1", "axb", "100001x8", "2x1025"})
    EXPECT_THAT(simulate(environment, {"t.csv", "--nodes", wrong}).err, HasSubstr("--nodes: '"))
        << wrong;
  EXPECT_THAT(simulate(environment, {"t.csv", "--nodes", "2x8", "--gpus", "16"}).err,
              HasSubstr("exclude each other"));
  EXPECT_THAT(simulate(environment, {"t.csv"}).err, HasSubstr("--nodes NxG"));
}

TEST(Simulate, OnlyJobsOfTheseUsersAndAccountsAreElastic) {
  FakeEnvironment environment;
  environment.files["t.csv"] =
      "id,arrival_s,duration_s,gpus,type,limit_s,u,user,account\n"
      "1,0,3600,8,T,3600,0.1,anna,lab\n2,0,3600,8,T,3600,0.1,bert,lab\n"
      "3,0,3600,8,T,3600,0.1,bert,shop\n";
  const auto elastic = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"t.csv", "--gpus",     "64",  "--sizes",
                                          "any",   "--policies", "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const AppResult result = simulate(environment, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(0, result.out.find(" on "));
  };
  EXPECT_EQ(elastic({}), "3 elastic and 0 rigid jobs");
  EXPECT_EQ(elastic({"--users", "bert"}), "2 elastic and 1 rigid jobs");
  EXPECT_EQ(elastic({"--users", "anna, bert", "--accounts", "lab"}), "2 elastic and 1 rigid jobs");
  EXPECT_EQ(elastic({"--users", "anna", "--accounts", "shop"}), "0 elastic and 3 rigid jobs");
  EXPECT_THAT(simulate(environment, {"t.csv", "--gpus", "64", "--users", "ann"}).err,
              HasSubstr("--users: no job of t.csv is of ann"));
}

TEST(Simulate, DrawsTheJobsAskedFor) {
  FakeEnvironment environment;
  environment.files["t.csv"] = kTrace;
  const auto draw = [&](const char* jobs) {
    return simulate(environment, {"t.csv", "--gpus", "128", "--policies", "recommended", "--svg",
                                  "out.svg", "--svg-jobs", jobs});
  };
  ASSERT_EQ(draw("2,1").exit_code, 0);
  const std::string& svg = environment.files["out.svg"];
  EXPECT_LT(svg.find("Job 2: "), svg.find("Job 1: "));
  EXPECT_EQ(svg.find("hours of the week"), std::string::npos) << "the trace is short";
  // The tide, and each job under the rigid run and the recommended rules; their colours differ.
  size_t lines = 0;
  for (size_t at = 0; (at = svg.find("stroke-width=\"1.5\"", at)) != std::string::npos; ++at)
    ++lines;
  EXPECT_EQ(lines, 4u);
  EXPECT_THAT(draw("7").err, HasSubstr("t.csv has no job 7"));
  EXPECT_THAT(draw("all").err, HasSubstr("'all' is no job id"));
  environment.files["t.csv"] += "3,800000,600,8,T,600,0.9\n";
  ASSERT_EQ(draw("1").exit_code, 0);
  EXPECT_THAT(svg, HasSubstr("hours of the week"));
}

TEST(Simulate, ReadsStandardInputAndShowsTheSpread) {
  FakeEnvironment environment;
  environment.files["-"] = kTrace;
  const AppResult result =
      simulate(environment, {"-", "--gpus", "128", "--policies", "none", "--seeds", "5-8",
                             "--share", "0.5", "--sizes", "any", "--csv", "out.csv"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the first of 4 runs"));
  EXPECT_THAT(result.out, HasSubstr("\n  lowest "));
  EXPECT_THAT(result.out, HasSubstr("\n  highest "));
  EXPECT_THAT(environment.files["out.csv"], HasSubstr("\nnone,1,5,all,"));
  EXPECT_THAT(environment.files["out.csv"], HasSubstr("\nnone,4,8,all,"));
}

TEST(Simulate, SaysWhatIsWrong) {
  FakeEnvironment environment;
  environment.files["t.csv"] = std::string(kTrace) + "3,x,1,1,T,1,1\n";
  const auto error = [&](std::vector<std::string> arguments) {
    const AppResult result = simulate(environment, std::move(arguments));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error({"t.csv", "--gpus", "8"}), HasSubstr("t.csv:4: arrival_s='x'"));
  EXPECT_THAT(error({"none.csv", "--gpus", "8"}), HasSubstr("none.csv does not exist"));
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--policies", "magic"}),
              HasSubstr("'magic' is no policy; one of rigid, flextrain-paper"));
  EXPECT_THAT(error({"t.csv", "--gpus", "0"}), HasSubstr("at least 1"));
  for (const char* seeds : {"0", "x", "3-2", "-", "1-", "0-3", "1-1001"})
    EXPECT_THAT(error({"t.csv", "--gpus", "8", "--seeds", seeds}), HasSubstr("--seeds: '"))
        << seeds;
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--svg-jobs", "1"}), HasSubstr("give --svg"));
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--pause", "1,2"}), HasSubstr("--pause takes one"));
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--pause", "1e9"}), HasSubstr("--pause: '1e9'"));
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--hand-over", "-1"}), HasSubstr("--hand-over must"));
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--tick", "0"}), HasSubstr("--tick must"));
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--warm-up", "-1"}), HasSubstr("--warm-up must"));
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--sizes", "many"}), HasSubstr("'many'"));
  EXPECT_THAT(error({"t.csv", "--gpus", "8", "--policies", ""}),
              HasSubstr("--policies names none"));
  environment.files["t.csv"] = kTrace;
  for (const char* days : {"1e300", "inf", "1"})
    EXPECT_THAT(error({"t.csv", "--gpus", "128", "--warm-up", days}),
                HasSubstr("no job of t.csv arrives after so many days"))
        << days;
}

TEST(Simulate, SaysWhenNoJobIsElastic) {
  FakeEnvironment environment;
  environment.files["t.csv"] = kTrace;
  const auto notes = [&](const char* policies, const char* sizes) {
    return simulate(environment,
                    {"t.csv", "--gpus", "128", "--policies", policies, "--sizes", sizes})
        .err;
  };
  EXPECT_THAT(notes("recommended", "8"), HasSubstr("no job is elastic"));
  EXPECT_EQ(notes("recommended", "32"), "");
  EXPECT_EQ(notes("rigid", "8"), "");
}

}  // namespace
}  // namespace flextrain::cli
