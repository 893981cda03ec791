// SPDX-License-Identifier: GPL-2.0-or-later
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/key_value_config.h"
#include "base/text.h"
#include "policy/settings.h"
#include "slurm_plugin/controller/controller_config.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;

const std::string kExample = FLEXTRAIN_SOURCE_DIR "/etc/flextrain.conf.example";

TEST(ControllerConfig, EmptyFileGivesTheDefaults) {
  const auto config = parse_controller_config("", "flextrain.conf");
  ASSERT_TRUE(config.ok());
  for (const ConfigKey& key : describe_config(*config)) EXPECT_EQ(key.value, key.default_value);
  EXPECT_EQ(config->lease_seconds, 300);
  EXPECT_EQ(config->policy.gate, policy::Gate::kBreakEven);
}

TEST(ControllerConfig, ExampleHoldsEveryKeyWithItsDefault) {
  const std::string text = read_file(kExample).value();
  const auto entries = parse_key_value_config(text, "example");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  const auto keys = describe_config(ControllerConfig{});
  ASSERT_EQ(entries->size(), keys.size());
  for (const ConfigKey& key : keys) {
    const auto found = std::find_if(entries->begin(), entries->end(),
                                    [&](const ConfigEntry& e) { return e.key == key.name; });
    ASSERT_NE(found, entries->end()) << key.name << " is not in the example";
    EXPECT_EQ(found->value, key.default_value) << key.name;
  }
  const auto config = load_controller_config(kExample);
  ASSERT_TRUE(config.ok()) << config.status().message();
  for (const ConfigKey& key : describe_config(*config)) {
    EXPECT_EQ(key.value, key.default_value) << key.name;
  }
}

TEST(ControllerConfig, DocumentationListsEveryKeyWithItsDefault) {
  const std::string text = read_file(FLEXTRAIN_SOURCE_DIR "/docs/configuration.md").value();
  for (const ConfigKey& key : describe_config(ControllerConfig{})) {
    const std::string shown = key.default_value.empty() ? "empty" : "`" + key.default_value + "`";
    EXPECT_THAT(text, HasSubstr("| `" + key.name + "` | " + shown + " |"));
  }
}

TEST(ControllerConfig, ReadsValuesInSlurmsStyle) {
  const auto config = parse_controller_config(
      "enabled = no # off\npartitions=a, b\nENDPOINTPORT=7000\nGate=Printed\nMaxGrowth=2.5\n"
      "CompanionPreemptable=yes\nCompanionPartition=scavenge\nLogLevel=Debug\n",
      "f");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->enabled);
  EXPECT_THAT(config->partitions, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(config->endpoint_port, 7000);
  EXPECT_EQ(config->policy.gate, policy::Gate::kPrinted);
  EXPECT_DOUBLE_EQ(config->policy.max_growth, 2.5);
  EXPECT_TRUE(config->companion_preemptable);
  EXPECT_EQ(config->log_level, LogLevel::kDebug);
  EXPECT_TRUE(elastic_partition(*config, "a"));
  EXPECT_FALSE(elastic_partition(*config, "c"));
  EXPECT_TRUE(elastic_partition(ControllerConfig{}, "anything"));
}

struct Bad {
  const char* text;
  const char* where;
  const char* why;
};
TEST(ControllerConfig, RefusesWithFileAndLine) {
  const Bad cases[] = {
      {"TickSeconds=10\nTickSecond=5\n", "f:2:", "TickSecond"},
      {"TickSeconds=ten\n", "f:1:", "TickSeconds"},
      {"\n\nTickSeconds=0\n", "f:3:", "outside"},
      {"EndpointPort=65536\n", "f:1:", "outside"},
      {"GateProbability=1.5\n", "f:1:", "outside"},
      {"GateProbability=nan\n", "f:1:", "GateProbability"},
      {"Enabled=perhaps\n", "f:1:", "Enabled"},
      {"Gate=sometimes\n", "f:1:", "Gate"},
      {"LogLevel=loud\n", "f:1:", "LogLevel"},
      {"DatabasePath=relative.db\n", "f:1:", "absolute"},
      {"DatabasePath=\n", "f:1:", "absolute"},
      {"Partitions=a,,b\n", "f:1:", "empty name"},
      {"CompanionQOS=a b\n", "f:1:", "one name"},
      {"Enabled\n", "f:1:", "Key=Value"},
      {"Enabled=yes\nenabled=no\n", "f:2:", "again"},
      {"LeaseSeconds=100\nRenewSeconds=100\n", "f:2:", "below LeaseSeconds"},
      {"TickSeconds=100\n", "f:1:", "twice TickSeconds"},
      {"CompanionSignalSeconds=120\n", "f:1:", "below RenewSeconds"},
      {"LeaseSeconds=60\nRenewSeconds=30\nCompanionSignalSeconds=20\n",
       "f:3:", "below RenewSeconds"},
      {"\nCompanionPreemptable=yes\n", "f:2:", "CompanionPartition"},
  };
  for (const Bad& bad : cases) {
    const auto config = parse_controller_config(bad.text, "f");
    ASSERT_FALSE(config.ok()) << bad.text;
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(config.status().message(), HasSubstr(bad.where)) << bad.text;
    EXPECT_THAT(config.status().message(), HasSubstr(bad.why)) << bad.text;
  }
}

TEST(ControllerConfig, EveryKeyOfThePolicyRefusesNonsense) {
  for (const auto& key : policy::settings()) {
    for (const char* value : {"nan", "inf", "-inf", "-1", "1e300", "99999999999999999999", "0x10",
                              "ten", "1 2", "1,000", "\x7f"}) {
      const auto config = parse_controller_config(key.name + "=" + value + "\n", "f");
      ASSERT_FALSE(config.ok()) << key.name << "=" << value;
      EXPECT_THAT(config.status().message(), ::testing::HasSubstr("f:1: " + key.name + "="));
    }
  }
}

TEST(ControllerConfig, MissingFileIsNotFound) {
  EXPECT_EQ(load_controller_config("/nonexistent/flextrain.conf").status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
