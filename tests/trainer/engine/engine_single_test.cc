// SPDX-License-Identifier: MIT
// One rank: that it learns, reports, refuses bad input, and survives numbers that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/trainer/engine/test_world.h"
#include "tests/trainer/engine/toy_run.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

planner::Plan one_rank_plan(const TrainConfig& config) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.num_mtp_heads = config.model.mtp_num_layers;
  layout.global_batch = config.global_batch;
  layout.micro_batch_size = config.micro_batch_size;
  layout.numerics = config.numerics;
  return planner::make_regular_plan(layout).value();
}

std::unique_ptr<Engine> make_toy_engine(const TrainConfig& config) {
  auto engine = make_engine(config, one_rank_plan(config), test_world());
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_TRUE((*engine)->initialize().ok());
  return std::move(engine).value();
}

// Every token of every sample is `token`.
class ConstantText final : public BatchSource {
 public:
  explicit ConstantText(int32_t token) : token_(token) {}
  void training_sample(int64_t, std::span<int32_t> tokens) const override {
    std::fill(tokens.begin(), tokens.end(), token_);
  }
  void evaluation_sample(int64_t, std::span<int32_t> tokens) const override {
    training_sample(0, tokens);
  }

 private:
  int32_t token_;
};

class Learning : public testing::TestWithParam<std::tuple<planner::Numerics, bool, int>> {};

TEST_P(Learning, LossFallsWellBelowLogV) {
  TrainConfig config = toy_config(3, 8);
  config.steps = 120;
  std::tie(config.numerics, config.model.tied_head, config.model.mtp_num_layers) = GetParam();
  std::vector<double> first_mtp, last_mtp;
  const auto engine = make_toy_engine(config);
  const ToyText text(config.model.vocab, false);
  double first = 0, last = 0;
  for (int64_t step = 0; step < config.steps; ++step) {
    auto result = engine->train_step(step, step * config.global_batch, text, false, false);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    if (step == 0) first = result->loss, first_mtp = result->mtp_losses;
    last = result->loss, last_mtp = result->mtp_losses;
    EXPECT_EQ(result->tokens, 8 * 16);
  }
  EXPECT_NEAR(first, std::log(64.0), 0.3);
  EXPECT_LT(last, 0.4 * std::log(64.0));
  ASSERT_EQ(last_mtp.size(), static_cast<size_t>(config.model.mtp_num_layers));
  for (size_t depth = 0; depth < last_mtp.size(); ++depth) {
    EXPECT_NEAR(first_mtp[depth], std::log(64.0), 0.3);
    EXPECT_LT(last_mtp[depth], 0.75 * std::log(64.0)) << depth;
  }
  auto eval = engine->evaluate(text, 7);
  ASSERT_TRUE(eval.ok());
  EXPECT_LT(*eval, 0.5 * std::log(64.0));
}

INSTANTIATE_TEST_SUITE_P(Modes, Learning,
                         testing::Combine(testing::Values(planner::Numerics::kExact,
                                                          planner::Numerics::kFp32),
                                          testing::Bool(), testing::Values(0, 2)));

TEST(Engine, EvaluationChangesNoState) {
  const TrainConfig config = toy_config(2, 4);
  const auto engine = make_toy_engine(config);
  const ToyText text(config.model.vocab, true);
  ASSERT_TRUE(engine->train_step(0, 0, text, false, false).ok());
  const std::string before = gather_state(*engine, config, test_world()).value();
  const double loss = engine->evaluate(text, 5).value();
  EXPECT_EQ(engine->evaluate(text, 5).value(), loss);
  EXPECT_EQ(gather_state(*engine, config, test_world()).value(), before);
}

TEST(Engine, NotANumberIsAnErrorAndLeavesTheWeights) {
  for (planner::Numerics numerics : {planner::Numerics::kExact, planner::Numerics::kFp32}) {
    TrainConfig config = toy_config(2, 4);
    config.numerics = numerics;
    const auto engine = make_toy_engine(config);
    LayerState layer = engine->export_layer(1).value();
    layer.tensors[4].values[3] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_TRUE(engine->import_layer(layer).ok());
    const std::string before = gather_state(*engine, config, test_world()).value();
    const auto result = engine->train_step(7, 28, ToyText(64, false), false, false);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(result.status().message(), HasSubstr("step 7"));
    EXPECT_EQ(gather_state(*engine, config, test_world()).value(), before);
  }
}

TEST(Engine, TokenOutsideTheVocabularyIsNamed) {
  const auto engine = make_toy_engine(toy_config(2, 4));
  const auto result = engine->train_step(0, 0, ConstantText(64), false, false);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.status().message(), HasSubstr("token 64"));
  EXPECT_THAT(engine->train_step(0, 0, ConstantText(-1), false, false).status().message(),
              HasSubstr("no valid token"));
}

TEST(Engine, ImportRefusesWhatDoesNotFitAndChangesNothing) {
  const TrainConfig config = toy_config(2, 4);
  const auto engine = make_toy_engine(config);
  const std::string before = gather_state(*engine, config, test_world()).value();
  const LayerState good = engine->export_layer(2).value();
  LayerState renamed = good, reshaped = good, shorter = good, elsewhere = good;
  renamed.tensors[1].name = "attention.wz.weight";
  reshaped.tensors[0].shape = {31};
  shorter.tensors.pop_back();
  elsewhere.layer = 9;
  EXPECT_THAT(engine->import_layer(renamed).message(), HasSubstr("attention.wq.weight"));
  EXPECT_THAT(engine->import_layer(reshaped).message(), HasSubstr("attention_norm.weight"));
  EXPECT_FALSE(engine->import_layer(shorter).ok());
  EXPECT_EQ(engine->import_layer(elsewhere).code(), StatusCode::kNotFound);
  EXPECT_EQ(gather_state(*engine, config, test_world()).value(), before);
}

TEST(Engine, SlowLayerShowsInTheProfileAndNotInTheBits) {
  TrainConfig config = toy_config(3, 4);
  const ToyText text(config.model.vocab, false);
  const auto run = [&](int slow_layer) {
    config.slow_layer = slow_layer;
    config.slow_factor = 10;
    const auto engine = make_toy_engine(config);
    for (int64_t step = 0; step < 6; ++step)
      EXPECT_TRUE(engine->train_step(step, 4 * step, text, false, step > 0).ok());
    return std::make_pair(engine->profile().value(),
                          gather_state(*engine, config, test_world()).value());
  };
  const auto [plain, plain_state] = run(-1);
  const auto [slow, slow_state] = run(2);
  EXPECT_EQ(plain_state, slow_state);
  ASSERT_EQ(slow.layers.size(), 5u);
  EXPECT_EQ(slow.steps, 5);
  for (const auto& layer : slow.layers) {
    EXPECT_GT(layer.forward, 0);
    EXPECT_GT(layer.backward, 0);
    EXPECT_GT(layer.static_bytes, 0);
  }
  // Times are noisy; ten times leaves room.
  EXPECT_GT(slow.layers[2].forward, 4 * slow.layers[1].forward);
  EXPECT_GT(slow.layers[2].backward, 4 * slow.layers[3].backward);
  EXPECT_LT(plain.layers[2].backward, 3 * plain.layers[3].backward);
  // A step holds four micro-batches of it, whatever else the machine does.
  EXPECT_GT(slow.step_seconds, slow.layers[2].forward + slow.layers[2].backward);
}

TEST(Engine, TraceHasEveryAction) {
  const TrainConfig config = toy_config(2, 3);
  const auto engine = make_toy_engine(config);
  ASSERT_TRUE(engine->train_step(0, 0, ToyText(64, false), false, true).ok());
  int forwards = 0, backwards = 0, steps = 0;
  double last = 0;
  for (const TraceEvent& event : engine->trace()) {
    forwards += event.action.kind == planner::ActionKind::kForward;
    backwards += event.action.kind == planner::ActionKind::kBackward;
    steps += event.action.kind == planner::ActionKind::kStep;
    EXPECT_GE(event.begin, last);
    EXPECT_GE(event.end, event.begin);
    last = event.end;
  }
  EXPECT_EQ(forwards, 3);
  EXPECT_EQ(backwards, 3);
  EXPECT_EQ(steps, 1);
}

TEST(Engine, FingerprintNamesWhatDecidesTheBits) {
  TrainConfig config = toy_config(2, 4);
  const std::string one = numerics_fingerprint(config);
  EXPECT_THAT(one, HasSubstr("cpu;onednn-"));
  EXPECT_THAT(one, HasSubstr("mb=1"));
  config.accumulation_scale = 36;
  EXPECT_EQ(numerics_fingerprint(config), one);
  config.micro_batch_size = 2;
  EXPECT_NE(numerics_fingerprint(config), one);
}

}  // namespace
}  // namespace flextrain::trainer
