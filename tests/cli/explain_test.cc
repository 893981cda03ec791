// SPDX-License-Identifier: MIT
#include "cli/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/explain_words.h"

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

TEST(Explain, AlternativesAndWhereTheNumbersComeFrom) {
  Json row = gate_refusal();
  row["gate"] = "break-even";
  row["forecast"] = "thinned";
  row["remaining_source"] = "limit";
  row["inputs"]["R"] = 5000;
  row["inputs"]["O_measured"] = 0;
  row["entries"] = {
      {{"gpus", 8},
       {"tokens_per_second", 1850.0},
       {"speedup", 1.85},
       {"refused_by", "not-best"},
       {"saved", 2297.3},
       {"value", 0.61}},
      {{"gpus", 12},
       {"tokens_per_second", 2650.0},
       {"speedup", 2.65},
       {"refused_by", "gate"},
       {"saved", 3113.2},
       {"value", 0.59534}},
      {{"gpus", 16}, {"tokens_per_second", 3420.0}, {"speedup", 3.42}, {"refused_by", "no-idle"}}};
  std::string text = explain_decision(row);
  EXPECT_THAT(text, HasSubstr("[DefaultOverheadSeconds in flextrain.conf]"));
  EXPECT_THAT(text, HasSubstr("[Forecast=thinned, from the controller's record of submissions]"));
  EXPECT_THAT(text, HasSubstr("[the job's time limit]"));
  EXPECT_THAT(text,
              HasSubstr("   12        2650    2.65x      3113.2      0.5953  not likely enough "
                        "to pay\n"));
  EXPECT_THAT(text,
              HasSubstr("   16        3420    3.42x           -           -  more than is idle "
                        "for it\n"));
  row["inputs"]["O_measured"] = 1;
  row["gate"] = "none";
  row["entries"][1]["refused_by"] = "a-newer-rule";
  text = explain_decision(row);
  EXPECT_THAT(text, HasSubstr("[measured by its agent]"));
  EXPECT_THAT(text, HasSubstr("a-newer-rule\n"));
  // Every symbol of the policy has a meaning and a source.
  for (const char* symbol : {"held",
                             "base",
                             "max",
                             "waiting",
                             "other_waiting",
                             "idle",
                             "N",
                             "v_now",
                             "v_new",
                             "S",
                             "O",
                             "lambda",
                             "margin",
                             "E",
                             "O_d",
                             "arrivals",
                             "T",
                             "P",
                             "P_th",
                             "R",
                             "saved",
                             "since_failure",
                             "pause",
                             "failures",
                             "since_switch",
                             "cooldown",
                             "scalings",
                             "most_scalings",
                             "left"}) {
    EXPECT_NE(symbol_text(row, symbol), "") << symbol;
    EXPECT_NE(symbol_source(row, symbol), "") << symbol;
  }
  row["kind"] = "shrink";
  for (const char* symbol : {"N", "n", "g", "I", "F", "E", "S", "held", "base", "busy"}) {
    EXPECT_NE(symbol_text(row, symbol), "") << symbol;
    EXPECT_NE(symbol_source(row, symbol), "") << symbol;
  }
}

TEST(Explain, WhoElseCouldHaveGiven) {
  const Json row = {{"id", 43},
                    {"job_id", 7},
                    {"for_job", 50},
                    {"kind", "shrink"},
                    {"rule", "reclaim"},
                    {"from_gpus", 12},
                    {"to_gpus", 4},
                    {"victims",
                     {{{"job_id", 7}, {"expanded", 8}, {"gives", 8}},
                      {{"job_id", 8}, {"expanded", 16}, {"gives", 0}},
                      {{"job_id", 9}, {"expanded", 4}, {"gives", 0}, {"spared", true}},
                      {{"job_id", 10}, {"expanded", 4}, {"gives", 0}, {"switching", true}}}}};
  const std::string text = explain_decision(row);
  EXPECT_THAT(text, HasSubstr("         7         8       8  gives back\n"));
  EXPECT_THAT(text, HasSubstr("         8        16       0  not needed, or not enough\n"));
  EXPECT_THAT(text, HasSubstr("spared: about to end, or in a save\n"));
  EXPECT_THAT(text, HasSubstr("is switching: not asked\n"));
}

TEST(Explain, SurvivesWhatItDoesNotKnow) {
  Json row = gate_refusal();
  row["rule"] = "a-newer-rule";
  row["formula"] = "something ~ new";
  row["inputs"]["Q\x1b"] = 5;
  row["entries"] = {5, {{"gpus", "many"}, {"refused_by", "\x1b"}}};
  row["victims"] = {nullptr, {{"job_id", "x"}, {"spared", 7}}};
  const std::string text = explain_decision(row);
  EXPECT_THAT(text, HasSubstr("a-newer-rule\n"));
  EXPECT_THAT(text, HasSubstr("something ~ new"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_FALSE(explain_decision(Json::object()).empty());
  EXPECT_FALSE(explain_decision(Json(5)).empty());
}

}  // namespace
}  // namespace flextrain::cli
