// SPDX-License-Identifier: MIT
#include "cli/tide.h"

#include <gmock/gmock.h>

#include "cli/app.h"
#include "tests/cli/fake_environment.h"

namespace flextrain::cli {
namespace {

using ::testing::HasSubstr;

Json row(const char* partition, int hour, double idle, double expanded) {
  return {{"partition", partition}, {"gres_type", *partition != 0 ? "a100" : ""},
          {"hour", hour},           {"samples", 12},
          {"total", 48.0},          {"idle", idle},
          {"expanded", expanded},   {"least_idle", 0},
          {"most_idle", 40}};
}

TEST(Tide, Drawn) {
  const std::string text =
      draw_tide({row("gpu", 9, 1, 2), row("gpu", 8, 24, 12), row("", 8, 48, 0)});
  EXPECT_THAT(text, HasSubstr("whole cluster, 48 GPUs, 12 samples\n"));
  EXPECT_THAT(text, HasSubstr("partition gpu, a100, 48 GPUs, 24 samples\n"));
  std::string bar = "  08  ";
  for (int i = 0; i < 24; ++i) bar += "█";
  for (int i = 0; i < 12; ++i) bar += "▒";
  for (int i = 0; i < 12; ++i) bar += "·";
  EXPECT_THAT(text, HasSubstr(bar + "    24.0  (0, 40)  12.0\n"));
  EXPECT_LT(text.find("  08  "), text.find("  09  █▒▒·"));
}

TEST(Tide, NothingYet) { EXPECT_THAT(draw_tide({}), HasSubstr("no samples yet")); }

TEST(Tide, OnTheCommandLine) {
  FakeEnvironment environment;
  environment.answers["tide"] = {{"rows", {row("gpu", 8, 24, 12)}}};
  const AppResult result = run_sflex({"idle", "--tide"}, environment);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("partition gpu"));
  EXPECT_EQ(environment.asked.back().what, "tide");
  EXPECT_EQ(environment.asked.back().filter, (Json{{"start", environment.time - 7 * 86400}}));
  EXPECT_EQ(run_sflex({"idle", "--tide", "-S", "now-1days", "-E", "now"}, environment).exit_code,
            0);
  EXPECT_EQ(environment.asked.back().filter,
            (Json{{"start", environment.time - 86400}, {"end", environment.time}}));
  EXPECT_THAT(run_sflex({"idle", "--tide", "--json"}, environment).out, HasSubstr("\"hour\": 8"));
  EXPECT_EQ(run_sflex({"idle", "-S", "now-1days"}, environment).exit_code, 2) << "of the tide only";
}

}  // namespace
}  // namespace flextrain::cli
