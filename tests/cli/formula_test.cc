// SPDX-License-Identifier: MIT
#include "cli/formula.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flextrain::cli {
namespace {

std::string verdict(const std::string& formula, const std::map<std::string, double>& inputs) {
  const auto clauses = evaluate_formula(formula, inputs);
  if (!clauses.ok()) return "error";
  std::string text;
  for (const EvaluatedClause& clause : *clauses) text += clause.holds ? "y" : "n";
  return text;
}

TEST(Formula, ThePolicysOwn) {
  const double P = std::exp(-0.001 * 300 * 2.5 / 1.5);
  const std::map<std::string, double> in = {
      {"lambda", 0.001}, {"O", 300},     {"S", 2.5},     {"P", P},   {"P_th", 0.6},
      {"R", 500},        {"saved", 300}, {"I", 2},       {"F", 8},   {"N", 9},
      {"held", 4},       {"max", 16},    {"waiting", 0}, {"idle", 8}};
  EXPECT_EQ(verdict("P = exp(-lambda*O*S/(S-1)) > P_th", in), "y");
  EXPECT_EQ(verdict("P = exp(-lambda*O/S) > P_th", in), "n") << "P is of another gate";
  EXPECT_EQ(verdict("P = exp(-lambda*O*S/(S-1)) > P_th and saved = R - R/S > O", in), "yn");
  EXPECT_EQ(verdict("I + F >= N", in), "y");
  EXPECT_EQ(verdict("held < N <= min(max, held + idle)", in), "y");
  EXPECT_EQ(verdict("waiting = 0", in), "y");
  EXPECT_EQ(verdict("held < max", in), "y");
}

TEST(Formula, NumbersPutIn) {
  const auto clauses = evaluate_formula(
      "P = exp(-lambda*O/S) > max(P_th, 0)",
      {{"P", 0.75}, {"lambda", 0.001}, {"O", 300}, {"S", 2}, {"P_th", 0.6}, {"max", 9}});
  ASSERT_TRUE(clauses.ok());
  EXPECT_EQ(clauses->at(0).numbers, "0.75 = exp(-0.001*300/2) > max(0.6, 0)");
}

TEST(Formula, Arithmetic) {
  EXPECT_EQ(verdict("2 + 3 * 4 = 14", {}), "y");
  EXPECT_EQ(verdict("(2 + 3) * 4 = 20", {}), "y");
  EXPECT_EQ(verdict("8 / 2 / 2 = 2", {}), "y");
  EXPECT_EQ(verdict("8 - 2 - 2 = 4", {}), "y");
  EXPECT_EQ(verdict("-2 * -3 = 6", {}), "y");
  EXPECT_EQ(verdict("1 < 2 < 3", {}), "y");
  EXPECT_EQ(verdict("1 < 3 < 2", {}), "n");
  EXPECT_EQ(verdict("1 / 0 > 5", {}), "y");
  EXPECT_EQ(verdict("min(3, 1, 2) = 1", {}), "y");
}

TEST(Formula, Malformed) {
  for (const char* bad : {"", "1 +", "1 + 1", "(1 > 0", "1 > 0)", "x > 0", "f(1) > 0",
                          "exp(1,2) > 0", "1 > > 2", "1 > 2 and", "1 ? 2", "1.2.3 > 0"})
    EXPECT_EQ(verdict(bad, {}), "error") << bad;
  EXPECT_EQ(verdict(std::string(100000, '(') + "1 > 0", {}), "error") << "nesting is bounded";
  EXPECT_EQ(verdict(std::string(100000, '-') + "1 > 0", {}), "error");
  EXPECT_EQ(evaluate_formula("x > 0", {}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace flextrain::cli
