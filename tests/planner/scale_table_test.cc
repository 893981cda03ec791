// SPDX-License-Identifier: MIT
#include "planner/scale_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "planner/predict.h"
#include "planner/schedule.h"

namespace flextrain::planner {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// L equal layers of forward 1 ms, backward 2 ms, 10 MiB static and 1 MiB of activations each; the
// ends are free. Measured on one GPU, the step being exactly what the layers add up to.
StepProfile uniform_profile(int layers, int micro_batches) {
  StepProfile profile;
  profile.layers.resize(layers + 2);
  for (int layer = 1; layer <= layers; ++layer) {
    profile.layers[layer] = {0.001, 0.002, 10 * kMiB, kMiB};
  }
  profile.step_seconds = 0.003 * layers * micro_batches;
  profile.steps = 3;
  return profile;
}

ScaleRequest request_for(int layers, int batch, int max_gpus) {
  ScaleRequest request;
  request.num_transformer_layers = layers;
  request.global_batch = batch;
  request.tokens_per_step = int64_t{1024} * batch;
  request.max_gpus = max_gpus;
  return request;
}

std::map<int, const ScaleEntry*> by_gpus(const ScaleTable& table) {
  std::map<int, const ScaleEntry*> result;
  for (const ScaleEntry& entry : table.entries) result[entry.shape.gpus] = &entry;
  return result;
}

TEST(ModelFormula, HandComputed) {
  // v = 6, m >= p: 32·6 + 3.
  EXPECT_DOUBLE_EQ(model_step_seconds(24, 4, 32, 1, 2), 195 * 3.0);
  // v = 1, m < p: 4 + 7.
  EXPECT_DOUBLE_EQ(model_step_seconds(8, 8, 4, 1, 2), 11 * 3.0);
  // v = 2, m < p: 4·2 + 7 + 1·4.
  EXPECT_DOUBLE_EQ(model_step_seconds(16, 8, 4, 1, 2), 19 * 3.0);
  // v = ⌈7/3⌉ = 3: 5·3 + 2.
  EXPECT_DOUBLE_EQ(model_step_seconds(7, 3, 5, 0.5, 1.5), 17 * 2.0);
  // One stage: all layers, all micro-batches.
  EXPECT_DOUBLE_EQ(model_step_seconds(12, 1, 16, 1, 2), 12 * 16 * 3.0);
}

TEST(ScaleTable, PredictsUniformLayersExactly) {
  const auto table = build_scale_table(uniform_profile(8, 16), request_for(8, 16, 8));
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  EXPECT_EQ(table->measured_gpus, 1);
  const auto entries = by_gpus(*table);
  ASSERT_EQ(entries.size(), 8u);
  for (const auto& [gpus, entry] : entries) {
    // 1F1B with ⌈8/p⌉ layers in the fullest stage is at most (m + p − 1) rounds of it; equal shares
    // make it exact.
    const int layers = (8 + gpus - 1) / gpus;
    const double rounds = 0.003 * layers * (16 + gpus - 1);
    if (8 % gpus == 0) {
      EXPECT_NEAR(entry->step_seconds, rounds, 1e-9) << gpus;
    } else {
      EXPECT_LE(entry->step_seconds, rounds + 1e-9) << gpus;
      EXPECT_GE(entry->step_seconds, 0.003 * layers * 16) << gpus;
    }
    EXPECT_NEAR(entry->tokens_per_second, 16 * 1024 / entry->step_seconds, 1e-6);
    EXPECT_EQ(num_ranks(entry->plan), gpus);
    EXPECT_TRUE(validate_plan(entry->plan).ok());
    EXPECT_EQ(entry->source, gpus > 1 ? PredictionSource::kProfile : PredictionSource::kMeasured);
  }
  // 1, 2, 4 and 8 divide the layers; 5, 6, 7 are no faster than 4.
  EXPECT_TRUE(entries.at(2)->kept && entries.at(4)->kept && entries.at(8)->kept);
  for (const int gpus : {5, 6, 7}) EXPECT_FALSE(entries.at(gpus)->kept) << gpus;
}

TEST(ScaleTable, MemoryIsStaticPlusMicroBatchesInFlight) {
  // PP 2, 4 layers: stage 0 holds 2 layers (20 MiB) and has 2 micro-batches in flight (2 × 2 MiB).
  const auto table = build_scale_table(uniform_profile(4, 8), request_for(4, 8, 4));
  ASSERT_TRUE(table.ok());
  const auto entries = by_gpus(*table);
  EXPECT_EQ(entries.at(1)->peak_memory_bytes, (40 + 4) * kMiB);
  EXPECT_EQ(entries.at(2)->peak_memory_bytes, (20 + 4) * kMiB);
  EXPECT_EQ(entries.at(4)->peak_memory_bytes, (10 + 4) * kMiB);
  // GPipe keeps all eight.
  ScaleRequest gpipe = request_for(4, 8, 4);
  gpipe.schedule = "gpipe";
  EXPECT_EQ(by_gpus(*build_scale_table(uniform_profile(4, 8), gpipe)).at(2)->peak_memory_bytes,
            (20 + 16) * kMiB);
}

TEST(ScaleTable, WhatDoesNotFitIsDroppedByTheMemoryRuleButTheMeasuredCountStays) {
  ScaleRequest request = request_for(4, 8, 4);
  request.memory_limit_bytes = 20 * kMiB;
  const auto table = build_scale_table(uniform_profile(4, 8), request);
  ASSERT_TRUE(table.ok());
  const auto entries = by_gpus(*table);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_TRUE(entries.at(1)->kept && entries.at(1)->fits);  // runs there now
  for (const int gpus : {2, 3}) {                           // their fullest stages hold 2 layers
    EXPECT_FALSE(entries.at(gpus)->kept || entries.at(gpus)->fits) << gpus;
    EXPECT_EQ(entries.at(gpus)->drop_rule,
              "memory: the fullest rank needs at least 25.166 MB, 20.972 MB are the limit");
  }
  EXPECT_TRUE(entries.at(4)->kept && entries.at(4)->fits);
  EXPECT_TRUE(table->note.empty());

  request.memory_limit_bytes = 2 * kMiB;
  const auto none = build_scale_table(uniform_profile(4, 8), request);
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(none->note, HasSubstr("(memory: 3, rule 1: 0"));
  EXPECT_THAT(none->note, HasSubstr("none fits into the memory of a rank"));
  const auto back = scale_table_from_json(scale_table_to_json(*none));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_FALSE(by_gpus(*back).at(2)->fits);
}

// What is tried besides the job's own schedule and recomputation counts before a size is given up,
// and what is named then is the least of all.
TEST(ScaleTable, TheMemoryRuleSpeaksForAllThatWasTried) {
  StepProfile profile = uniform_profile(4, 8);
  profile.hop_bytes = kMiB / 64;
  ScaleRequest request = request_for(4, 8, 4);
  request.schedules = {"gpipe", "1f1b", "memory-min"};
  request.recompute = {Recompute::kNone, Recompute::kFull};
  const auto roomy = build_scale_table(profile, request);
  ASSERT_TRUE(roomy.ok()) << roomy.status().to_string();
  request.memory_limit_bytes = 1;
  const auto least = build_scale_table(profile, request);
  ASSERT_TRUE(least.ok());
  for (const ScaleEntry& entry : least->entries) {
    if (entry.shape.gpus == 1) continue;
    EXPECT_EQ(entry.plan.schedule, "memory-min");
    ScaleRequest enough = request;
    enough.memory_limit_bytes = entry.peak_memory_bytes;
    const auto fitting = build_scale_table(profile, enough);
    ASSERT_TRUE(fitting.ok());
    EXPECT_TRUE(by_gpus(*fitting).at(entry.shape.gpus)->fits);
    enough.memory_limit_bytes -= 1;
    EXPECT_FALSE(by_gpus(*build_scale_table(profile, enough)).at(entry.shape.gpus)->fits);
  }
}

TEST(ScaleTable, ForbiddenNoOpsAreInNoPlan) {
  ScaleRequest request = request_for(7, 8, 28);
  request.max_data_parallel = 4;
  request.schedules = {"1f1b", "v-shape"};
  request.virtual_stages = {1, 2};
  const auto no_ops_in = [](const ScaleTable& table) {
    int64_t count = 0;
    for (const ScaleEntry& entry : table.entries) {
      for (const Stage& stage : entry.plan.pipelines[0].stages) {
        for (const auto& chunk : stage.chunks)
          count += std::count(chunk.begin(), chunk.end(), kNoOp);
      }
    }
    return count;
  };
  const auto padded = build_scale_table(uniform_profile(7, 8), request);
  request.no_ops = false;
  const auto forbidden = build_scale_table(uniform_profile(7, 8), request);
  ASSERT_TRUE(padded.ok() && forbidden.ok()) << forbidden.status().to_string();
  EXPECT_GT(no_ops_in(*padded), 0);
  EXPECT_EQ(no_ops_in(*forbidden), 0);
  // No size is lost: as many stages as layers need no padding.
  EXPECT_EQ(forbidden->entries.size(), padded->entries.size());
}

TEST(ScaleTable, TheMeasuredEntryGoesOnAsItWasMeasured) {
  StepProfile profile = uniform_profile(8, 8);
  profile.pipeline_parallel = 2;
  profile.virtual_stages = 2;
  RegularLayout layout;
  layout.num_transformer_layers = 8;
  layout.pipeline_parallel = layout.virtual_stages = 2;
  layout.global_batch = 8;
  layout.schedule = "v-shape";
  layout.recompute = Recompute::kSelective;
  ScaleRequest request = request_for(8, 8, 4);
  request.measured_plan = make_regular_plan(layout).value();
  const auto table = build_scale_table(profile, request);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const ScaleEntry& measured = *by_gpus(*table).at(2);
  EXPECT_EQ(measured.source, PredictionSource::kMeasured);
  EXPECT_EQ(measured.plan.schedule, "v-shape");
  EXPECT_EQ(measured.plan.recompute[3], Recompute::kSelective);
  EXPECT_NEAR(measured.predicted_step_seconds, profile.step_seconds, 1e-9);
  // An explicit one has no name: what the request says.
  layout.virtual_stages = profile.virtual_stages = 1;
  layout.schedule = "1f1b";
  Plan plan = make_regular_plan(layout).value();
  plan.explicit_actions = {schedule_of(plan, 0).value()};
  plan.schedule = "explicit";
  request.measured_plan = plan;
  request.schedule = "zb-1p";
  const auto explicitly = build_scale_table(profile, request);
  ASSERT_TRUE(explicitly.ok()) << explicitly.status().to_string();
  EXPECT_EQ(by_gpus(*explicitly).at(2)->plan.schedule, "zb-1p");
}

// The last stage of a tied model holds the embedding's matrix as well, a stage with both ends once.
TEST(ScaleTable, SharedMatricesCountOnEveryStageThatWorksWithThem) {
  StepProfile profile = uniform_profile(4, 8);
  profile.layers[0].static_bytes = 30 * kMiB;
  profile.layers[5].needs_layer = 0;
  const auto plan_of = [](int pp) {
    RegularLayout layout;
    layout.num_transformer_layers = 4;
    layout.pipeline_parallel = pp;
    layout.global_batch = 8;
    return make_regular_plan(layout).value();
  };
  EXPECT_EQ(predict(profile, {}, plan_of(1))->fullest_static_bytes, (4 * 10 + 30) * kMiB);
  EXPECT_EQ(predict(profile, {}, plan_of(2))->fullest_static_bytes, (2 * 10 + 30) * kMiB);
  EXPECT_EQ(held_layers(profile, plan_of(2).pipelines[0].stages[1]),
            (std::vector<LayerId>{0, 3, 4, 5}));
}

TEST(ScaleTable, PipelineOnlyElasticityKeepsTheDataParallelDegree) {
  StepProfile profile = uniform_profile(6, 6);
  profile.data_parallel = 2;
  ScaleRequest request = request_for(6, 12, 12);
  request.min_data_parallel = request.max_data_parallel = 2;
  const auto table = build_scale_table(profile, request);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  ASSERT_EQ(table->entries.size(), 6u);
  for (const ScaleEntry& entry : table->entries) {
    EXPECT_EQ(entry.plan.pipelines.size(), 2u);
    EXPECT_EQ(entry.shape.gpus % 2, 0);
  }
  EXPECT_EQ(table->measured_gpus, 2);
}

TEST(ScaleTable, DataParallelDegreesMustDivideTheBatch) {
  ScaleRequest request = request_for(2, 12, 12);
  request.max_data_parallel = 12;
  const auto table = build_scale_table(uniform_profile(2, 12), request);
  ASSERT_TRUE(table.ok());
  for (const ScaleEntry& entry : table->entries) {
    EXPECT_EQ(12 % entry.plan.pipelines.size(), 0u);
  }
  const auto entries = by_gpus(*table);
  // 5 = 5 × 1 does not divide 12 and PP is at most 2; 8 = 4 × 2 is the only way.
  EXPECT_EQ(entries.count(5), 0u);
  EXPECT_EQ(entries.at(8)->plan.pipelines.size(), 4u);
  // No reduction cost was measured: data parallelism beats a pipeline's bubbles.
  EXPECT_EQ(entries.at(2)->plan.pipelines.size(), 2u);
}

TEST(ScaleTable, ReductionMakesDataParallelismDearer) {
  StepProfile profile = uniform_profile(4, 8);
  profile.data_parallel = 2;
  profile.reduce_seconds = 0.5;
  ScaleRequest request = request_for(4, 16, 4);
  request.max_data_parallel = 4;
  const auto entries_table = build_scale_table(profile, request);
  ASSERT_TRUE(entries_table.ok()) << entries_table.status().to_string();
  EXPECT_EQ(by_gpus(*entries_table).at(4)->plan.pipelines.size(), 1u);
  // Volume of a ring: 2(d−1)/d. Four pipelines reduce 1.5 / 1 of what two do.
  MeasuredLayout measured;
  measured.data_parallel = 2;
  measured.fullest_static_bytes = 40 * kMiB;
  RegularLayout layout;
  layout.num_transformer_layers = 4;
  layout.data_parallel = 4;
  layout.global_batch = 16;
  const auto four = predict(profile, measured, make_regular_plan(layout).value());
  ASSERT_TRUE(four.ok());
  EXPECT_NEAR(four->step_seconds, 4 * 4 * 0.003 + 0.75, 1e-9);
}

TEST(ScaleTable, TransfersAndOptimiserCount) {
  StepProfile profile = uniform_profile(2, 1);
  profile.transfer_seconds = 0.01;
  profile.optimizer_seconds = 0.1;
  MeasuredLayout measured;
  measured.fullest_static_bytes = 20 * kMiB;
  RegularLayout layout;
  layout.num_transformer_layers = 2;
  layout.pipeline_parallel = 2;
  const auto two = predict(profile, measured, make_regular_plan(layout).value());
  ASSERT_TRUE(two.ok());
  // Two forwards, two backwards, two hops; half the weights to update on each.
  EXPECT_NEAR(two->step_seconds, 2 * 0.003 + 2 * 0.01 + 0.05, 1e-9);
}

TEST(ScaleTable, ATableIsCalibratedByTheMeasuredStep) {
  StepProfile profile = uniform_profile(8, 16);
  profile.step_seconds *= 1.5;
  const auto table = build_scale_table(profile, request_for(8, 16, 8));
  ASSERT_TRUE(table.ok());
  const auto entries = by_gpus(*table);
  EXPECT_DOUBLE_EQ(entries.at(1)->step_seconds, profile.step_seconds);
  EXPECT_NEAR(entries.at(4)->step_seconds, 1.5 * 0.003 * 2 * 19, 1e-9);
}

TEST(ScaleTable, CalibrationUsesThePlanThatWasMeasured) {
  // Three layers on the first stage, one on the second: the step was slow for that reason.
  StepProfile profile = uniform_profile(4, 8);
  profile.pipeline_parallel = 2;
  ScaleRequest request = request_for(4, 8, 2);
  RegularLayout layout;
  layout.num_transformer_layers = 4;
  layout.pipeline_parallel = 2;
  layout.global_batch = 8;
  layout.layer_costs = {0, 1, 1, 1, 3, 0};
  request.measured_plan = make_regular_plan(layout).value();
  ASSERT_EQ(request.measured_plan->pipelines[0].stages[0].chunks[0].size(), 4u);
  MeasuredLayout measured = measured_layout(profile, *request.measured_plan);
  profile.step_seconds = predict(profile, measured, *request.measured_plan)->step_seconds;
  const auto table = build_scale_table(profile, request);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  EXPECT_NEAR(by_gpus(*table).at(1)->step_seconds, 0.003 * 4 * 8, 1e-9);
}

TEST(ScaleTable, ASlowLayerChangesTableAndPlacement) {
  StepProfile profile = uniform_profile(8, 16);
  const auto even = build_scale_table(profile, request_for(8, 16, 8));
  profile.layers[3].forward *= 3;
  profile.layers[3].backward *= 3;
  profile.step_seconds += 16 * 0.006;
  const auto slow = build_scale_table(profile, request_for(8, 16, 8));
  ASSERT_TRUE(even.ok() && slow.ok());
  const auto before = by_gpus(*even), after = by_gpus(*slow);
  EXPECT_NE(before.at(4)->plan.id, after.at(4)->plan.id);
  EXPECT_NE(before.at(4)->plan.pipelines[0].stages[1].chunks,
            after.at(4)->plan.pipelines[0].stages[1].chunks);
  EXPECT_GT(after.at(4)->step_seconds, before.at(4)->step_seconds * 1.2);
  // The slow layer alone bounds the deepest pipeline: 8 stages gain little over 4 now.
  EXPECT_TRUE(before.at(8)->kept);
  EXPECT_FALSE(after.at(8)->kept);
}

// Each rule fires on a table made from a profile, not only on figures by hand.
TEST(ScaleTable, RulesFire) {
  const auto rules = [](const StepProfile& profile, const ScaleRequest& request) {
    const auto table = build_scale_table(profile, request);
    EXPECT_TRUE(table.ok()) << table.status().to_string();
    std::string text;
    for (const ScaleEntry& entry : table->entries) {
      text += fmt::format("{}:{} ", entry.shape.gpus, entry.drop_rule.substr(0, 6));
    }
    return text;
  };
  // Hops as dear as the work: the model falls with every stage, the profile rises.
  StepProfile dear_hops = uniform_profile(4, 2);
  dear_hops.transfer_seconds = 0.05;
  EXPECT_THAT(rules(dear_hops, request_for(4, 2, 4)), HasSubstr("2:rule 1"));
  // A head as heavy as all layers: the model takes it for divisible.
  StepProfile heavy_head = uniform_profile(8, 32);
  heavy_head.layers[9] = {0.008, 0.016, kMiB, 0};
  heavy_head.step_seconds *= 2;
  EXPECT_THAT(rules(heavy_head, request_for(8, 32, 8)), HasSubstr("4:rule 2"));
  // 6 stages still have two layers in the fullest one.
  EXPECT_THAT(rules(uniform_profile(8, 320), request_for(8, 320, 6)), HasSubstr("6:rule 3"));
}

TEST(ScaleTable, JsonRoundTrip) {
  ScaleRequest request = request_for(6, 12, 12);
  request.max_data_parallel = 4;
  request.device_type = "a100";
  const auto table = build_scale_table(uniform_profile(6, 12), request);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const Json json = scale_table_to_json(*table);
  const auto back = scale_table_from_json(parse_json(json.dump(), "table").value());
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(scale_table_to_json(*back), json);
  EXPECT_EQ(back->measured_gpus, table->measured_gpus);
  ASSERT_EQ(back->entries.size(), table->entries.size());
  for (size_t i = 0; i < table->entries.size(); ++i) {
    const ScaleEntry &a = table->entries[i], &b = back->entries[i];
    EXPECT_EQ(a.shape.gpus, b.shape.gpus);
    EXPECT_EQ(b.shape.device_type, "a100");
    EXPECT_EQ(a.plan.id, b.plan.id);
    EXPECT_EQ(a.step_seconds, b.step_seconds);
    EXPECT_EQ(a.tokens_per_second, b.tokens_per_second);
    EXPECT_EQ(a.peak_memory_bytes, b.peak_memory_bytes);
    EXPECT_EQ(a.source, b.source);
    EXPECT_EQ(a.model_step_seconds, b.model_step_seconds);
    EXPECT_EQ(a.kept, b.kept);
    EXPECT_EQ(a.drop_rule, b.drop_rule);
  }
}

TEST(ScaleTable, JsonSurvivesGarbage) {
  const Json table =
      scale_table_to_json(build_scale_table(uniform_profile(2, 4), request_for(2, 4, 2)).value());
  const Json profile = profile_to_json(uniform_profile(2, 4));
  for (const Json& junk : std::vector<Json>{nullptr, -1, 1e300, "x", Json::array(), Json::object(),
                                            std::numeric_limits<uint64_t>::max(), true}) {
    for (const auto& [key, value] : table.items()) {
      Json broken = table;
      broken[key] = junk;
      const auto result = scale_table_from_json(broken);
      EXPECT_TRUE(!result.ok() || key == "entries" || key == "measured_gpus" || key == "note")
          << key << junk;
    }
    for (const auto& [key, value] : table["entries"][0].items()) {
      Json broken = table;
      broken["entries"][0][key] = junk;
      (void)scale_table_from_json(broken);
    }
    for (const auto& [key, value] : profile.items()) {
      Json broken = profile;
      broken[key] = junk;
      const auto result = profile_from_json(broken);
      if (result.ok()) (void)build_scale_table(*result, request_for(2, 4, 2));
    }
    EXPECT_FALSE(scale_table_from_json(junk).ok());
    EXPECT_FALSE(profile_from_json(junk).ok());
  }
}

TEST(Profile, JsonRoundTrip) {
  StepProfile profile = uniform_profile(3, 4);
  profile.transfer_seconds = 0.125;
  profile.reduce_seconds = 0.25;
  profile.optimizer_seconds = 0.5;
  profile.pipeline_parallel = 2;
  profile.data_parallel = 3;
  profile.virtual_stages = 4;
  profile.layers[4].needs_layer = 0;  // a tied head
  const auto back = profile_from_json(profile_to_json(profile));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(profile_to_json(*back), profile_to_json(profile));
  EXPECT_EQ(back->layers[2].backward, 0.002);
  EXPECT_EQ(back->layers[2].activation_bytes, kMiB);
  EXPECT_EQ(back->virtual_stages, 4);
  EXPECT_EQ(back->layers[4].needs_layer, 0);
  EXPECT_EQ(back->layers[3].needs_layer, kNoOp);
}

TEST(ScaleTable, RefusesUnusableInput) {
  const StepProfile good = uniform_profile(4, 8);
  const auto refused = [](const StepProfile& profile, const ScaleRequest& request) {
    const auto table = build_scale_table(profile, request);
    return !table.ok() && table.status().code() == StatusCode::kInvalidArgument;
  };
  const ScaleRequest request = request_for(4, 8, 4);
  EXPECT_FALSE(refused(good, request));
  StepProfile bad = good;
  bad.layers.pop_back();
  EXPECT_TRUE(refused(bad, request));
  bad = good;
  bad.layers[1].forward = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(refused(bad, request));
  bad = good;
  bad.layers[1].needs_layer = 6;
  EXPECT_TRUE(refused(bad, request));
  bad = good;
  bad.layers[1].static_bytes = -1;
  EXPECT_TRUE(refused(bad, request));
  bad = good;
  bad.layers[1].activation_bytes = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(refused(bad, request));
  bad = good;
  for (LayerProfile& layer : bad.layers) layer.forward = layer.backward = 0;
  EXPECT_TRUE(refused(bad, request));
  bad = good;
  bad.pipeline_parallel = bad.data_parallel = 1 << 30;
  EXPECT_TRUE(refused(bad, request));
  bad = good;
  bad.step_seconds = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(refused(bad, request));
  for (const auto& spoil : std::vector<void (*)(ScaleRequest&)>{
           [](ScaleRequest& r) { r.max_gpus = 0; }, [](ScaleRequest& r) { r.global_batch = 0; },
           [](ScaleRequest& r) { r.tokens_per_step = 0; },
           [](ScaleRequest& r) { r.min_data_parallel = 2; },
           [](ScaleRequest& r) { r.num_transformer_layers = -1; },
           [](ScaleRequest& r) { r.schedule = "zigzag"; },
           [](ScaleRequest& r) { r.memory_limit_bytes = -1; },
           [](ScaleRequest& r) { r.device_type = "a 100"; },
           [](ScaleRequest& r) { r.significant_gain = -0.1; }}) {
    ScaleRequest wrong = request;
    spoil(wrong);
    EXPECT_TRUE(refused(good, wrong));
  }
}

}  // namespace
}  // namespace flextrain::planner
