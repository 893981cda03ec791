// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "planner/plan.h"
#include "tests/planner/random_plan.h"

namespace flextrain::planner {
namespace {

TEST(PlanJson, RandomPlansRoundTrip) {
  std::mt19937 random(2026);
  int asymmetric = 0, with_actions = 0, unequal_tp = 0;
  for (int round = 0; round < 400; ++round) {
    const Plan plan = random_plan(random);
    ASSERT_TRUE(validate_plan(plan).ok()) << validate_plan(plan).to_string();
    const auto parsed = parse_json(plan_to_json(plan).dump(), "Plan");
    ASSERT_TRUE(parsed.ok());
    const auto back = plan_from_json(*parsed);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    ASSERT_TRUE(same_plan(plan, *back)) << plan_to_json(plan).dump();
    asymmetric += plan.pipelines.size() > 1 &&
                  plan.pipelines[0].stages.size() != plan.pipelines[1].stages.size();
    with_actions += plan.schedule == "explicit";
    const auto& ranks = plan.pipelines[0].stages[0].ranks;
    unequal_tp += ranks.size() > 1 && ranks[0].shard_end - ranks[0].shard_begin !=
                                          ranks[1].shard_end - ranks[1].shard_begin;
  }
  EXPECT_GT(asymmetric, 40);
  EXPECT_GT(with_actions, 40);
  EXPECT_GT(unequal_tp, 40);
}

TEST(PlanJson, IdFollowsTheContent) {
  std::mt19937 random(1);
  const Plan plan = random_plan(random);
  Json json = plan_to_json(plan);
  json.erase("id");
  const auto without_id = plan_from_json(json);
  ASSERT_TRUE(without_id.ok());
  EXPECT_EQ(without_id->id, plan.id);

  Plan other = plan;
  other.recompute[0] =
      other.recompute[0] == Recompute::kNone ? Recompute::kSelective : Recompute::kNone;
  EXPECT_NE(plan_id(other), plan.id);
  other.id = plan.id;  // stale
  EXPECT_FALSE(plan_from_json(plan_to_json(other)).ok());
}

// Whatever stands in any place of the text, the answer is a Plan or an error, never a crash or an
// endless allocation; and a Plan that is accepted is valid.
TEST(PlanJson, SurvivesGarbageEverywhere) {
  const std::vector<Json> garbage = {nullptr,
                                     true,
                                     "",
                                     "x",
                                     -1,
                                     -2,
                                     0,
                                     7,
                                     2147483648LL,
                                     std::numeric_limits<uint64_t>::max(),
                                     std::numeric_limits<int64_t>::min(),
                                     2147483647,
                                     1.5,
                                     1e300,
                                     Json::array(),
                                     Json::object(),
                                     Json::array({Json::array({1})}),
                                     Json{{"a", Json::array({1, 2, 3})}}};
  std::mt19937 random(99);
  int refused = 0;
  for (int round = 0; round < 2; ++round) {
    Json json = plan_to_json(random_plan(random));
    json.erase("id");
    std::vector<Json::json_pointer> places;
    const std::function<void(const Json&, const Json::json_pointer&)> walk =
        [&](const Json& node, const Json::json_pointer& place) {
          places.push_back(place);
          if (node.is_object()) {
            for (const auto& [key, value] : node.items()) walk(value, place / key);
          } else if (node.is_array() && places.size() < 400) {
            for (size_t i = 0; i < node.size(); ++i) walk(node[i], place / i);
          }
        };
    walk(json, Json::json_pointer());
    for (const auto& place : places) {
      for (const Json& junk : garbage) {
        Json broken = json;
        broken[place] = junk;
        const auto plan = plan_from_json(broken);
        if (plan.ok()) {
          ASSERT_TRUE(validate_plan(*plan).ok());
        } else {
          ++refused;
          ASSERT_FALSE(plan.status().message().empty());
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(PlanJson, RefusesDeepNesting) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "{\"pipelines\":[";
  const auto unfinished = parse_json(text, "Plan");
  EXPECT_FALSE(unfinished.ok());
  Json deep = Json::array();
  for (int i = 0; i < 2000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_FALSE(plan_from_json(Json{{"version", 1}, {"pipelines", std::move(deep)}}).ok());
}

TEST(PlanJson, RefusesAnotherVersion) {
  std::mt19937 random(5);
  Json json = plan_to_json(random_plan(random));
  json["version"] = Plan::kVersion + 1;
  const auto plan = plan_from_json(json);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("version 2"), std::string::npos);
}

}  // namespace
}  // namespace flextrain::planner
