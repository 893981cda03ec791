// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/config_reader.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

constexpr const char* kMinimal = "[data]\ntext = \"a.txt\"\n";

TEST(ConfigReader, ReadsEveryKindOfValue) {
  const auto config = parse_train_config(
      "[model]\nlayers = 6\nrope_theta = 500000\ntied_head = true\n"
      "[optimizer]\nlearning_rate = 1e-3\n"
      "[training]\nnumerics = \"fp32\"\nseed = 7\nglobal_batch = 12\nmicro_batch_size = 3\n"
      "[data]\ntext = \"a.txt\"\n",
      "job.toml");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->model.layers, 6);
  EXPECT_EQ(config->model.rope_theta, 500000.0);
  EXPECT_TRUE(config->model.tied_head);
  EXPECT_EQ(config->optimizer.learning_rate, 1e-3);
  EXPECT_EQ(config->numerics, planner::Numerics::kFp32);
  EXPECT_EQ(config->seed, 7u);
  EXPECT_EQ(config->micro_batch_size, 3);
  EXPECT_EQ(config->text_path, "a.txt");
}

struct BadCase {
  const char* name;
  const char* text;
  std::vector<const char*> message;  // all must occur
};

class BadConfig : public testing::TestWithParam<BadCase> {};

TEST_P(BadConfig, IsRefusedWithPlaceAndRemedy) {
  const auto config = parse_train_config(GetParam().text, "job.toml");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
  for (const char* part : GetParam().message) {
    EXPECT_THAT(config.status().message(), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadConfig,
    testing::Values(
        BadCase{"syntax", "[data]\ntext = \n", {"job.toml:2:"}},
        BadCase{"unknown_key",
                "[data]\ntext = \"a\"\ntxet = \"b\"\n",
                {"job.toml:3:", "unknown key 'txet' in [data]", "eval_fraction"}},
        BadCase{"unknown_section",
                "[modle]\nlayers = 3\n",
                {"job.toml:1:", "unknown section [modle]", "model, optimizer"}},
        BadCase{"empty_unknown_section", "[modle]\n", {"unknown section [modle]"}},
        BadCase{"outside_section", "layers = 3\n", {"job.toml:1:", "outside a section"}},
        BadCase{"duplicate", "[model]\nlayers = 3\nlayers = 4\n", {"job.toml:3:"}},
        BadCase{"wrong_type",
                "[model]\nlayers = \"four\"\n",
                {"job.toml:2:", "model.layers must be an integer from 1 to 10000, not \"four\""}},
        BadCase{"float_for_int", "[model]\nlayers = 4.0\n", {"model.layers must be an integer"}},
        BadCase{"array", "[model]\nlayers = [4]\n", {"job.toml:2:", "must be an integer"}},
        BadCase{"bool_for_string", "[data]\ntext = true\n", {"data.text must be a string"}},
        BadCase{"out_of_range", "[model]\nlayers = 0\n", {"from 1 to 10000, not 0"}},
        BadCase{"negative", "[training]\nsteps = -5\n", {"training.steps", "not -5"}},
        BadCase{"huge", "[model]\nhidden = 9000000000\n", {"not 9000000000"}},
        BadCase{"not_finite", "[optimizer]\neps = nan\n", {"optimizer.eps must be a number"}},
        BadCase{"zero_rate", "[optimizer]\nlearning_rate = 0\n", {"above 0"}},
        BadCase{"numerics",
                "[training]\nnumerics = \"bf16\"\n",
                {"job.toml:2:", "\"exact\" or \"fp32\", not \"bf16\""}},
        BadCase{"heads",
                "[model]\nhidden = 100\nheads = 3\n[data]\ntext = \"a\"\n",
                {"model.hidden (100)", "model.heads (3)"}},
        BadCase{"kv_heads",
                "[model]\nheads = 4\nkv_heads = 3\n[data]\ntext = \"a\"\n",
                {"model.heads (4)", "model.kv_heads (3)"}},
        BadCase{"odd_head",
                "[model]\nhidden = 12\nheads = 4\nkv_heads = 4\n[data]\ntext = \"a\"\n",
                {"must be even"}},
        BadCase{"batch",
                "[training]\nglobal_batch = 8\nmicro_batch_size = 3\n[data]\ntext = \"a\"\n",
                {"training.global_batch (8)", "training.micro_batch_size (3)"}},
        BadCase{"rates",
                "[optimizer]\nlearning_rate = 1e-5\n[data]\ntext = \"a\"\n",
                {"optimizer.min_learning_rate"}},
        BadCase{"schedule",
                "[parallel]\nschedule = \"2f2b\"\n[data]\ntext = \"a\"\n",
                {"\"searched\" or \"auto\", not \"2f2b\""}},
        BadCase{"recompute",
                "[parallel]\nrecompute = \"some\"\n[data]\ntext = \"a\"\n",
                {"\"full\" or \"auto\", not \"some\""}},
        BadCase{"mtp_depth",
                "[model]\nsequence = 2\nmtp_num_layers = 2\n[data]\ntext = \"a\"\n",
                {"model.mtp_num_layers (2)", "model.sequence (2)"}},
        BadCase{"v_shape",
                "[parallel]\nschedule = \"v-shape\"\nvirtual_stages = 3\n[data]\ntext = \"a\"\n",
                {"virtual_stages (3)", "two chunks"}},
        BadCase{"pipeline",
                "[parallel]\npipeline_parallel = 9\nno_ops = false\n[data]\ntext = \"a\"\n",
                {"parallel.pipeline_parallel (9)", "No-Ops", "forbidden"}},
        BadCase{"eval",
                "[data]\ntext = \"a\"\neval_every = 5\neval_fraction = 0\n",
                {"data.eval_every is 5"}}),
    [](const auto& info) { return info.param.name; });

TEST(ConfigReader, OverridesComeLast) {
  const auto config =
      parse_train_config(kMinimal, "job.toml",
                         {"model.layers=9", "training.numerics=fp32", "data.text=2024",
                          "model.tied_head = true", "training.steps=5", "training.steps=6"});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->model.layers, 9);
  EXPECT_EQ(config->numerics, planner::Numerics::kFp32);
  EXPECT_EQ(config->text_path, "2024");
  EXPECT_TRUE(config->model.tied_head);
  EXPECT_EQ(config->steps, 6);
}

TEST(ConfigReader, BadOverridesAreNamed) {
  for (const char* override : {"layers=9", "model.layer=9", "modle.layers=9", "model.layers=x",
                               "model.layers", "model.layers=1 2"}) {
    const auto config = parse_train_config(kMinimal, "job.toml", {override});
    ASSERT_FALSE(config.ok()) << override;
    EXPECT_THAT(config.status().message(), HasSubstr(std::string("--set ") + override));
  }
}

TEST(ConfigReader, MissingFileIsNotFound) {
  const auto config = read_train_config("/nonexistent/job.toml");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), StatusCode::kNotFound);
}

TEST(ConfigJson, RoundTripKeepsEveryBit) {
  auto config = parse_train_config(kMinimal, "job.toml",
                                   {"optimizer.learning_rate=0.0012345678901234567",
                                    "training.seed=999999999999", "model.norm_eps=3.3e-7"});
  ASSERT_TRUE(config.ok());
  const Json json = config_to_json(*config);
  const auto parsed = parse_json(json.dump(), "config");
  ASSERT_TRUE(parsed.ok());
  const auto back = config_from_json(*parsed);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(config_to_json(*back), json);
  EXPECT_EQ(back->optimizer.learning_rate, config->optimizer.learning_rate);
  EXPECT_EQ(back->seed, 999999999999u);
}

TEST(ConfigJson, WrongTypesAreRefused) {
  auto config = parse_train_config(kMinimal, "job.toml");
  ASSERT_TRUE(config.ok());
  Json json = config_to_json(*config);
  json["model"]["layers"] = Json::array({1});
  EXPECT_FALSE(config_from_json(json).ok());
  EXPECT_FALSE(config_from_json(Json("text")).ok());
}

TEST(ConfigJson, DifferencesNameTheKey) {
  auto ours = parse_train_config(kMinimal, "job.toml");
  ASSERT_TRUE(ours.ok());
  TrainConfig theirs = *ours;
  EXPECT_TRUE(model_differences(*ours, theirs).empty());
  theirs.optimizer.learning_rate = 1;
  theirs.steps = 5;
  theirs.checkpoint_dir = "elsewhere";
  EXPECT_TRUE(model_differences(*ours, theirs).empty());
  theirs.model.hidden = 128;
  const auto differences = model_differences(*ours, theirs);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_THAT(differences[0], HasSubstr("model.hidden is 256 here but 128 in the checkpoint"));
}

// The table, the documentation and the example cannot drift apart.
TEST(ConfigDocs, EveryKeyIsDocumented) {
  const auto docs = read_file(SOURCE_DIR "/docs/trainer-config.md");
  ASSERT_TRUE(docs.ok()) << docs.status().to_string();
  TrainConfig config;
  for (const ConfigField& field : config_fields(config)) {
    EXPECT_THAT(*docs, HasSubstr(fmt::format("| `{}.{}` |", field.section, field.name)));
  }
}

TEST(ConfigDocs, ExampleIsValid) {
  const auto config = read_train_config(SOURCE_DIR "/etc/job.toml.example");
  EXPECT_TRUE(config.ok()) << config.status().to_string();
}

}  // namespace
}  // namespace flextrain::trainer
