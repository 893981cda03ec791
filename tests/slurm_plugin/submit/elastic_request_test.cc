// SPDX-License-Identifier: GPL-2.0-or-later
#include "protocol/elastic_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace flextrain::protocol {
namespace {

using ::testing::HasSubstr;

ElasticRequest request(ElasticMode mode, bool factor, double value) {
  return {mode, {factor, value}};
}

TEST(ElasticMode, KnowsBothNamesAndTheDefault) {
  EXPECT_EQ(*parse_elastic_mode(""), ElasticMode::kDpPp);
  EXPECT_EQ(*parse_elastic_mode("dp+pp"), ElasticMode::kDpPp);
  EXPECT_EQ(*parse_elastic_mode("pp"), ElasticMode::kPp);
}

TEST(ElasticMode, RefusesOthersInOneLine) {
  for (const char* text : {"tp", "PP", "pp ", "dp", "pp+dp", "1"}) {
    const Result<ElasticMode> mode = parse_elastic_mode(text);
    ASSERT_FALSE(mode.ok()) << text;
    EXPECT_THAT(mode.status().message(), HasSubstr(text));
    EXPECT_THAT(mode.status().message(), HasSubstr("pp or dp+pp"));
    EXPECT_EQ(mode.status().message().find('\n'), std::string::npos);
  }
}

struct MaxCase {
  const char* text;
  bool factor;
  double value;
};
TEST(ElasticMax, AcceptsGpusAndFactors) {
  for (const MaxCase& c : {MaxCase{"16", false, 16}, MaxCase{"1", false, 1}, MaxCase{"4x", true, 4},
                           MaxCase{"2X", true, 2}, MaxCase{"1.5x", true, 1.5},
                           MaxCase{"1x", true, 1}, MaxCase{"1000000", false, 1e6}}) {
    const Result<ElasticMax> max = parse_elastic_max(c.text);
    ASSERT_TRUE(max.ok()) << max.status().to_string();
    EXPECT_EQ(max->is_factor, c.factor) << c.text;
    EXPECT_EQ(max->value, c.value) << c.text;
  }
}

TEST(ElasticMax, RefusesTheRest) {
  for (const char* text : {"", "x", "many", "-4", "+4", "4 ", "0", "0x", "0.5x", "1e3", "0x10",
                           "4y", "4xx", "2.5", "1000001", "nan", "inf", "1.2.3x", "."}) {
    const Result<ElasticMax> max = parse_elastic_max(text);
    ASSERT_FALSE(max.ok()) << text;
    EXPECT_THAT(max.status().message(), HasSubstr(std::string("--elastic-max=") + text + ":"));
  }
}

TEST(MaxGpus, IsTheFactorOrTheCountAndNeverBelowTheBase) {
  EXPECT_EQ(max_gpus(request(ElasticMode::kPp, true, 4), 2), 8);
  EXPECT_EQ(max_gpus(request(ElasticMode::kPp, true, 1.5), 3), 4);
  EXPECT_EQ(max_gpus(request(ElasticMode::kPp, false, 16), 2), 16);
  EXPECT_EQ(max_gpus(request(ElasticMode::kPp, false, 2), 8), 8);
  EXPECT_EQ(max_gpus(request(ElasticMode::kPp, true, 1e6), 1000), 1000000);
}

TEST(Token, HasTheDocumentedForm) {
  EXPECT_EQ(elastic_token({}), "flextrain(mode=dp+pp,max=4x)");
  EXPECT_EQ(elastic_token(request(ElasticMode::kPp, false, 16)), "flextrain(mode=pp,max=16)");
  EXPECT_EQ(elastic_token(request(ElasticMode::kPp, true, 1.5)), "flextrain(mode=pp,max=1.5x)");
}

TEST(Token, KeepsWhatElseStandsInTheComment) {
  EXPECT_EQ(with_token("", {}), "flextrain(mode=dp+pp,max=4x)");
  EXPECT_EQ(with_token("ticket 42", {}), "ticket 42 flextrain(mode=dp+pp,max=4x)");
  EXPECT_EQ(with_token("a flextrain(mode=pp,max=2) b", {}), "a b flextrain(mode=dp+pp,max=4x)");
  EXPECT_EQ(with_token("flextrain(mode=pp,max=2)", {}), "flextrain(mode=dp+pp,max=4x)");
  EXPECT_EQ(with_token("flextrain(x flextrain(mode=pp,max=2) end", {}),
            "end flextrain(mode=dp+pp,max=4x)");
  EXPECT_EQ(with_token("my-flextrain(1)", {}), "my-flextrain(1) flextrain(mode=dp+pp,max=4x)");
  EXPECT_EQ(with_token("flextrain(broken tail", {}), "tail flextrain(mode=dp+pp,max=4x)");
}

TEST(Token, IsReadBackAndReplacedOnlyOnce) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    ElasticRequest original;
    original.mode = random() % 2 ? ElasticMode::kPp : ElasticMode::kDpPp;
    original.max.is_factor = random() % 2;
    original.max.value = original.max.is_factor ? 1 + (random() % 64) / 8.0 : 1 + random() % 5000;
    std::string comment;
    for (unsigned n = random() % 20; n > 0; --n) comment += "ab (),=x1_-"[random() % 11];
    const std::string once = with_token(comment, original);
    EXPECT_TRUE(once.starts_with(comment)) << once;
    EXPECT_EQ(with_token(once, original), once);
    const auto back = from_comment(once);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    ASSERT_TRUE(back->has_value());
    EXPECT_EQ((*back)->mode, original.mode);
    EXPECT_EQ((*back)->max.is_factor, original.max.is_factor);
    EXPECT_EQ((*back)->max.value, original.max.value);
  }
}

TEST(Token, IsAbsentWhereThereIsNone) {
  for (const char* text : {"", "hello", "flextrain", "xflextrain(mode=pp,max=2)",
                           "flextrain(companion-of=12,intent=ab)"}) {
    const auto found = from_comment(text);
    ASSERT_TRUE(found.ok()) << text;
    EXPECT_FALSE(found->has_value()) << text;
  }
}

TEST(Token, IsAnErrorWhereItIsMalformed) {
  for (const char* text :
       {"flextrain(", "flextrain()", "flextrain(mode=pp)", "flextrain(max=4x)",
        "flextrain(mode=zz,max=4x)", "flextrain(mode=pp,max=4x,new=1)", "flextrain(mode=pp,max=4x",
        "flextrain(mode=pp,mode=pp,max=1)", "flextrain(mode=pp,max=1,max=2)"}) {
    const auto found = from_comment(text);
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_THAT(found.status().message(), HasSubstr("admin_comment"));
  }
}

TEST(CompanionToken, RoundTrips) {
  const std::string text = companion_token(123, "0af3");
  EXPECT_EQ(text, "flextrain(companion-of=123,intent=0af3)");
  const auto tag = companion_from_comment("site " + text);
  ASSERT_TRUE(tag.has_value());
  EXPECT_EQ(tag->base_job_id, 123u);
  EXPECT_EQ(tag->intent_id, "0af3");
  for (const char* bad :
       {"", "flextrain(mode=pp,max=2)", "flextrain(companion-of=x,intent=1)",
        "flextrain(companion-of=0,intent=1)", "flextrain(companion-of=1)",
        "flextrain(companion-of=4294967296,intent=1)", "flextrain(companion-of=1,intent=1"}) {
    EXPECT_FALSE(companion_from_comment(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace flextrain::protocol
