// SPDX-License-Identifier: MIT
// The command line: options, filters, formats, exit codes.
#include "cli/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/time_spec.h"
#include "tests/cli/fake_environment.h"

namespace flextrain::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class App : public ::testing::Test {
 protected:
  App() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    environment_.answers["jobs"] = {{"rows",
                                     {{{"job_id", 7},
                                       {"user", "anna"},
                                       {"name", "llama-of-the-andes"},
                                       {"state", "steady"},
                                       {"base_gpus", 4},
                                       {"held_gpus", 12},
                                       {"max_gpus", 16},
                                       {"hosts",
                                        {{{"node", "n1"}, {"gpus", 4}, {"job_id", 7}},
                                         {{"node", "n3"}, {"gpus", 8}, {"job_id", 12}}}},
                                       {"step", 120},
                                       {"total_steps", 1000},
                                       {"loss", 3.14159265},
                                       {"tokens_per_second", 18500.5},
                                       {"remaining_seconds", 3661.2},
                                       {"grows", 2},
                                       {"shrinks", 1},
                                       {"start", 1764436400},
                                       {"end", 0}}}}};
    environment_.answers["decisions"] = {{"rows", Json::array()}};
    environment_.answers["companions"] = {{"rows", Json::array()}};
    environment_.answers["idle"] = {{"rows",
                                     {{{"node", "n5"},
                                       {"gpus", 8},
                                       {"allocated", 8},
                                       {"expanded", 4},
                                       {"idle", 0},
                                       {"state", "ALLOCATED"},
                                       {"why", ""}}}}};
    environment_.answers["table"] = {{"rows",
                                      {{{"shape", {{"gpus", 4}, {"device_type", ""}}},
                                        {"base", true},
                                        {"current", false},
                                        {"step_seconds", 0.5},
                                        {"tokens_per_second", 1000.0},
                                        {"base_tokens_per_second", 1000.0},
                                        {"peak_memory_bytes", 1610612736},
                                        {"source", "measured"},
                                        {"kept", true},
                                        {"drop_rule", ""},
                                        {"summary", "PP 4 x DP 1, 1f1b, 4 GPUs"}},
                                       {{"shape", {{"gpus", 6}, {"device_type", ""}}},
                                        {"base", false},
                                        {"current", false},
                                        {"step_seconds", 0.49},
                                        {"tokens_per_second", 1020.0},
                                        {"base_tokens_per_second", 1000.0},
                                        {"source", "profile"},
                                        {"kept", false},
                                        {"drop_rule", "gain 0.02 below 0.05"},
                                        {"summary", "PP 6 x DP 1, 1f1b, 6 GPUs"}}}}};
  }
  ~App() override {
    ::unsetenv("TZ");
    ::tzset();
  }
  AppResult run(const std::vector<std::string>& arguments) {
    return run_sflex(arguments, environment_);
  }
  Json filter_of(const std::vector<std::string>& arguments) {
    environment_.asked.clear();
    const AppResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return environment_.asked.empty() ? Json() : environment_.asked.back().filter;
  }

  FakeEnvironment environment_;
};

TEST_F(App, JobsTable) {
  const AppResult result = run({"jobs", "-o", "JobID,JobName,Base,GPUs,Hosts,Step,Loss,Left"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out,
            "   JobID      JobName  Base  GPUs Hosts                             Step     Loss     "
            "  Left\n"
            "-------- ------------ ----- ----- ------------------------ ------------- -------- "
            "----------\n"
            "       7 llama-of-th+     4    12 n1:4,n3:8*                    120/1000   3.1416   "
            "01:01:01\n");
}

TEST_F(App, ParsableNoHeader) {
  EXPECT_EQ(run({"jobs", "-P", "-n", "--format=JobID,JobName,State"}).out,
            "7|llama-of-the-andes|steady\n");
}

TEST_F(App, JsonIsWhatCame) {
  const AppResult result = run({"jobs", "--json"});
  EXPECT_EQ(Json::parse(result.out), environment_.answers["jobs"]);
}

TEST_F(App, TableOfAJob) {
  const AppResult result =
      run({"table", "7", "-o", "Base,GPUs,Tokens/s,Speedup,Memory,Source,Kept,Dropped"});
  EXPECT_EQ(result.out,
            "Base  GPUs   Tokens/s Speedup    Memory   Source Kept Dropped\n"
            "---- ----- ---------- ------- --------- -------- ---- "
            "----------------------------------------\n"
            "   *     4       1000   1.00x      1.5G measured  yes\n"
            "         6       1020   1.02x            profile   no gain 0.02 below 0.05\n");
  EXPECT_EQ(environment_.asked.back().filter, (Json{{"job", {7}}}));
  EXPECT_EQ(run({"table"}).exit_code, 2);
  EXPECT_EQ(run({"table", "7,8"}).exit_code, 2);
}

TEST_F(App, PauseAndResume) {
  EXPECT_EQ(run({"pause", "7"}).out, "done as told\n");
  EXPECT_EQ(environment_.commanded.back().action, "pause");
  EXPECT_EQ(environment_.commanded.back().job_id, 7u);
  EXPECT_EQ(run({"resume", "all"}).exit_code, 0);
  EXPECT_EQ(environment_.commanded.back().action, "resume");
  EXPECT_EQ(environment_.commanded.back().job_id, 0u);
  for (const char* nonsense : {"", "0", "7,8", "x", "-1", "4294967296"})
    EXPECT_EQ(run({"pause", nonsense}).exit_code, 2) << nonsense;
  EXPECT_EQ(environment_.commanded.size(), 2u);
  environment_.command_answer = failed_precondition("all jobs are paused by root");
  const AppResult refused = run({"resume", "7"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("paused by root"));
}

// What holds a job back is shown before how it came into its state.
TEST_F(App, AHeldJobSaysWhy) {
  Json& row = environment_.answers["jobs"]["rows"][0];
  row["hold"] = "left-alone";
  row["hold_reason"] = "3 switches failed";
  row["state_reason"] = "given back";
  EXPECT_EQ(run({"jobs", "-P", "-n", "-o", "Hold,Reason"}).out, "left-alone|3 switches failed\n");
}

TEST_F(App, IdleTable) { EXPECT_THAT(run({"idle"}).out, HasSubstr("ALLOCATED")); }

TEST_F(App, Filters) {
  const int64_t now = environment_.time, midnight = now - now % 86400;
  EXPECT_EQ(filter_of({"jobs"}), Json::object());
  EXPECT_EQ(filter_of({"jobs", "-j", "7,8", "-u", "ben"}),
            (Json{{"job", {7, 8}}, {"user", "ben"}, {"all", true}}));
  EXPECT_EQ(filter_of({"jobs", "-a"}), (Json{{"all", true}}));
  EXPECT_EQ(filter_of({"jobs", "-S", "now-2hours"}), (Json{{"start", now - 7200}, {"all", true}}));
  EXPECT_EQ(filter_of({"companions", "--starttime=now-2hours", "--endtime=now-1hours"}),
            (Json{{"start", now - 7200}, {"end", now - 3600}, {"all", true}}));
  EXPECT_EQ(filter_of({"decisions"}), (Json{{"start", midnight}}));
  EXPECT_EQ(filter_of({"decisions", "-j7"}), (Json{{"job", {7}}, {"all", true}}));
  EXPECT_EQ(filter_of({"decisions", "-k", "GROW", "-S", "2025-11-01"}),
            (Json{{"kind", "grow"}, {"start", 1761955200}, {"all", true}}));
}

TEST_F(App, BadUsage) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"bogus"},
                                             {"jobs", "--bogus"},
                                             {"jobs", "-j", "x"},
                                             {"jobs", "-j", "-1"},
                                             {"jobs", "-S", "soon"},
                                             {"jobs", "-S", "now", "-E", "now-1hours"},
                                             {"jobs", "-o", "Nonsense"},
                                             {"decisions", "-k", "maybe"},
                                             {"explain"},
                                             {"explain", "x"}}) {
    const AppResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(arguments);
    EXPECT_FALSE(result.err.empty()) << ::testing::PrintToString(arguments);
    EXPECT_EQ(result.out, "") << ::testing::PrintToString(arguments);
  }
}

TEST_F(App, ControllerAwayIsOneClearLine) {
  environment_.answers.clear();
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"jobs"},
                                             {"decisions"},
                                             {"companions"},
                                             {"idle"},
                                             {"table", "7"},
                                             {"explain", "1"},
                                             {"diag"},
                                             {"metrics"}}) {
    const AppResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "sflex: the controller cannot be asked at ctl:6822\n");
  }
}

TEST_F(App, AnswerWithoutRows) {
  environment_.answers["jobs"] = {{"something", 1}};
  EXPECT_EQ(run({"jobs"}).exit_code, 1);
  environment_.answers["jobs"] = 5;
  EXPECT_EQ(run({"jobs"}).exit_code, 1);
  environment_.answers["jobs"] = {{"rows", {1, "x", nullptr, {{"job_id", "text"}}}}};
  EXPECT_EQ(run({"jobs"}).exit_code, 0) << "rows that are none print as blanks";
}

TEST_F(App, Explain) {
  environment_.answers["explain"] = {
      {"rows", {{{"id", 42}, {"kind", "refuse"}, {"job_id", 7}, {"snapshot", nullptr}}}}};
  EXPECT_THAT(run({"explain", "42"}).out, StartsWith("Decision 42"));
  EXPECT_EQ(environment_.asked.back().filter, (Json{{"id", 42}}));
  EXPECT_THAT(run({"explain", "42", "--snapshot"}).out, HasSubstr("only root and SlurmUser"));
  environment_.answers["explain"] = {{"rows", Json::array()}};
  EXPECT_EQ(run({"explain", "43"}).exit_code, 1);
}

TEST_F(App, HelpAndVersion) {
  EXPECT_EQ(run({"--help"}).exit_code, 0);
  EXPECT_THAT(run({"--help"}).out, HasSubstr("explain"));
  EXPECT_THAT(run({"--version"}).out, HasSubstr("sflex"));
  for (const char* command : {"jobs", "decisions", "companions", "idle", "table"}) {
    const AppResult result = run({command, "--helpformat"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_FALSE(result.out.empty());
  }
}

TEST_F(App, Diag) {
  environment_.answers["metrics"] = {
      {"rows", {{{"text", "# TYPE a gauge\n# HELP a A.\na 1\n# EOF\n"}}}}};
  EXPECT_EQ(run({"metrics"}).out, "# TYPE a gauge\n# HELP a A.\na 1\n# EOF\n");
  environment_.answers["metrics"] = {{"rows", Json::array()}};
  EXPECT_EQ(run({"metrics"}).exit_code, 1);
  environment_.answers["diag"] = {
      {"rows", {{{"epoch", 3}, {"elastic", true}, {"started", 1764440000}, {"note", "a\nb"}}}}};
  EXPECT_EQ(run({"diag"}).out,
            "elastic: true\nepoch: 3\nnote: a?b\nstarted: 2025-11-29T18:13:20\n");
}

}  // namespace
}  // namespace flextrain::cli
