// SPDX-License-Identifier: MIT
#include "cli/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace flextrain::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json gate_refusal() {
  const double S = 2.65, O = 300, lambda = 31.0 / 28800;
  return {{"id", 42},
          {"job_id", 7},
          {"user", "anna"},
          {"for_job", 0},
          {"kind", "refuse"},
          {"rule", "gate"},
          {"reason", "going from 4 to 12 GPUs (2.65x) costs 300.0 s; …"},
          {"from_gpus", 4},
          {"to_gpus", 12},
          {"first_time", 1764440000},
          {"last_time", 1764440300},
          {"repeats", 14},
          {"formula", "P = exp(-lambda*O*S/(S-1)) > P_th"},
          {"inputs",
           {{"S", S},
            {"O", O},
            {"lambda", lambda},
            {"P", std::exp(-lambda * O * S / (S - 1))},
            {"P_th", 0.6},
            {"N", 12},
            {"idle", 8}}},
          {"take", Json::array()},
          {"give_back", Json::array()},
          {"scaling", nullptr}};
}

TEST(Explain, RefusalByTheGate) {
  const std::string text = explain_decision(gate_refusal());
  EXPECT_THAT(text, HasSubstr("Decision 42: job 7 of anna does not grow from 4 to 12 GPUs"));
  EXPECT_THAT(text, HasSubstr("14 times from "));
  EXPECT_THAT(text, HasSubstr("P = exp(-lambda*O*S/(S-1)) > P_th"));
  EXPECT_THAT(text,
              HasSubstr("0.59534 = exp(-0.0010764*300*2.65/(2.65-1)) > 0.6    which is NOT so"));
  EXPECT_THAT(text, HasSubstr("seconds that the switch costs"));
  EXPECT_THAT(text, HasSubstr("GPUs of the entry chosen"));
  EXPECT_THAT(text, HasSubstr("The growth to 12 GPUs is refused; the job stays at 4 GPUs."));
  EXPECT_THAT(text, Not(HasSubstr("What came of it")));
}

TEST(Explain, GrowthWithItsOutcome) {
  Json row = gate_refusal();
  row["kind"] = "grow";
  row["repeats"] = 1;
  row["take"] = Json::array({{{"node", "n3"}, {"gpus", 8}}});
  row["scaling"] = {
      {"begin", 1764440300},
      {"end", 1764440306},
      {"outcome", "done"},
      {"reason", ""},
      {"phases", {{"companions", 1.25}, {"save", 0.5}, {"launch", 2.0}, {"total", 3.5}}}};
  const std::string text = explain_decision(row);
  EXPECT_THAT(text, HasSubstr("job 7 of anna grows from 4 to 12 GPUs"));
  EXPECT_THAT(text, HasSubstr("Companions are submitted for 8 GPUs more: 8 on n3."));
  EXPECT_THAT(text, HasSubstr("companions 1.25, save 0.50, launch 2.00"));
  EXPECT_THAT(text, HasSubstr("The trainer stood still for 3.50 s"));
  EXPECT_THAT(text, HasSubstr("6 s after the decision"));
}

TEST(Explain, Shrink) {
  const Json row = {{"id", 43},          {"job_id", 7},
                    {"user", "anna"},    {"for_job", 50},
                    {"kind", "shrink"},  {"rule", "reclaim"},
                    {"reason", "…"},     {"from_gpus", 12},
                    {"to_gpus", 4},      {"formula", "I + F >= N"},
                    {"repeats", 1},      {"inputs", {{"I", 0}, {"F", 8}, {"N", 8}, {"S", 2.65}}},
                    {"outcome", "open"}, {"give_back", {901, 902}}};
  const std::string text = explain_decision(row);
  EXPECT_THAT(text, HasSubstr("job 7 of anna gives GPUs back for job 50: from 12 to 4 GPUs"));
  EXPECT_THAT(text, HasSubstr("0 + 8 >= 8    which is so"));
  EXPECT_THAT(text, HasSubstr("GPUs that the waiting job needs")) << "N means another thing here";
  EXPECT_THAT(text, HasSubstr("901, 902"));
  EXPECT_THAT(text, HasSubstr("under way"));
}

TEST(Explain, Abort) {
  const Json row = {{"id", 44},
                    {"job_id", 0},
                    {"for_job", 50},
                    {"kind", "abort"},
                    {"rule", "not-enough"},
                    {"formula", "I + E >= N"},
                    {"inputs", {{"I", 2}, {"E", 4}, {"N", 8}}}};
  const std::string text = explain_decision(row);
  EXPECT_THAT(text, HasSubstr("nothing is taken back for waiting job 50"));
  EXPECT_THAT(text, HasSubstr("2 + 4 >= 8    which is NOT so"));
  EXPECT_THAT(text, HasSubstr("keeps its place in the queue"));
}

TEST(Explain, SurvivesWhatItDoesNotKnow) {
  Json row = gate_refusal();
  row["rule"] = "a-newer-rule";
  row["formula"] = "something ~ new";
  row["inputs"]["Q\x1b"] = 5;
  const std::string text = explain_decision(row);
  EXPECT_THAT(text, HasSubstr("a-newer-rule\n"));
  EXPECT_THAT(text, HasSubstr("something ~ new"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_FALSE(explain_decision(Json::object()).empty());
  EXPECT_FALSE(explain_decision(Json(5)).empty());
}

}  // namespace
}  // namespace flextrain::cli
