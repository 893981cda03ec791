// SPDX-License-Identifier: MIT
#include "protocol/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "protocol/messages.h"
#include "tests/temp_folder.h"

namespace flextrain::protocol {
namespace {

TEST(HostList, Accepts) {
  EXPECT_EQ(*parse_host_list("ctl", 1), (std::vector<HostPort>{{"ctl", 1}}));
  EXPECT_EQ(*parse_host_list("a:7, b ,[::1]:9,[::2]", 1),
            (std::vector<HostPort>{{"a", 7}, {"b", 1}, {"::1", 9}, {"::2", 1}}));
}

TEST(HostList, Refuses) {
  for (const char* text : {"", ",", "a:", "a:0", "a:65536", "a:x", "[::1", "[::1]9", "a b", ":7",
                           "a/b", "user@host"}) {
    EXPECT_EQ(parse_host_list(text, 1).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(SlurmConfig, ReadsScontrolOutput) {
  const auto location = parse_slurm_config(
      "Configuration data as of 2026-01-01\n"
      "ClusterName             = Fx1\n"
      "SlurmUser               = slurm(64030)\n"
      "SlurmctldHost[0]        = ctl(10.64.3.1)\n"
      "SlurmctldHost[1]        = ctl2\n",
      99);
  ASSERT_TRUE(location.ok()) << location.status().to_string();
  EXPECT_EQ(location->hosts, (std::vector<HostPort>{{"10.64.3.1", 99}, {"ctl2", 99}}));
  EXPECT_EQ(location->slurm_uid, 64030u);
  EXPECT_EQ(location->cluster, "fx1");
}

TEST(SlurmConfig, ReadsSlurmConf) {
  const auto location = parse_slurm_config(
      "# SlurmctldHost=no\nClusterName=x # c\nslurmctldhost=a\nSlurmctldHost=b(1.2.3.4)\n", 5);
  ASSERT_TRUE(location.ok());
  EXPECT_EQ(location->hosts, (std::vector<HostPort>{{"a", 5}, {"1.2.3.4", 5}}));
  EXPECT_EQ(location->slurm_uid, 0u) << "slurm.conf(5): SlurmUser is root unless set";
}

TEST(SlurmConfig, Refuses) {
  EXPECT_EQ(parse_slurm_config("", 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(parse_slurm_config("SlurmctldHost=a\nSlurmUser=no-such-user-here\n", 1).status().code(),
            StatusCode::kNotFound);
}

TEST(EndpointPort, ReadsAndRefuses) {
  EXPECT_EQ(*endpoint_port("", "f"), kDefaultPort);
  EXPECT_EQ(*endpoint_port("Enabled=yes\nendpointport=7000\n", "f"), 7000);
  EXPECT_FALSE(endpoint_port("EndpointPort=0\n", "f").ok());
  EXPECT_FALSE(endpoint_port("EndpointPort=seven\n", "f").ok());
}

TEST(Discovery, SlurmConfBesideFlextrainConf) {
  const TempFolder folder;
  const std::string& dir = folder.path();
  std::ofstream(dir + "/slurm.conf") << "ClusterName=c\nSlurmctldHost=h1\nSlurmctldHost=h2\n"
                                     << "SlurmUser=root\n";
  std::ofstream(dir + "/flextrain.conf") << "EndpointPort=7001\n";
  ::setenv("SLURM_CONF", (dir + "/slurm.conf").c_str(), 1);
  ::setenv("PATH", "/nonexistent", 1);  // no scontrol
  ::unsetenv("FLEXTRAIN_CONTROLLER");
  auto location = discover_controller();
  ASSERT_TRUE(location.ok()) << location.status().to_string();
  EXPECT_EQ(location->hosts, (std::vector<HostPort>{{"h1", 7001}, {"h2", 7001}}));
  ::setenv("FLEXTRAIN_CONTROLLER", "other:5", 1);
  location = discover_controller();
  ASSERT_TRUE(location.ok());
  EXPECT_EQ(location->hosts, (std::vector<HostPort>{{"other", 5}}));
  ::setenv("FLEXTRAIN_CONTROLLER", "bad host", 1);
  EXPECT_FALSE(discover_controller().ok());
  ::unsetenv("FLEXTRAIN_CONTROLLER");
  std::ofstream(dir + "/flextrain.conf") << "EndpointPort=nonsense\n";
  EXPECT_FALSE(discover_controller().ok()) << "a broken port is said, not guessed around";
}

}  // namespace
}  // namespace flextrain::protocol
