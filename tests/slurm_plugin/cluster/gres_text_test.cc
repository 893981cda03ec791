// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/cluster/gres_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace flextrain::slurm_plugin {
namespace {

using ::testing::ElementsAre;

struct Case {
  const char* text;
  int gpus;
  const char* type;
};

TEST(GpusIn, ReadsEveryFormSlurmWrites) {
  for (const Case& c : {
           Case{"", 0, ""},
           Case{"(null)", 0, ""},
           Case{"gpu:8", 8, ""},
           Case{"gpu:a100:4", 4, "a100"},
           Case{"gpu:a100:4(S:0-1)", 4, "a100"},
           Case{"gpu:a100:4(S:0,2-3),nic:1", 4, "a100"},
           Case{"gpu:a100:4(IDX:0-3)", 4, "a100"},
           Case{"gpu:2(IDX:0,3)", 2, ""},
           Case{"gpu:0(IDX:N/A)", 0, ""},
           Case{"gpu:a100:0(IDX:N/A),gpu:v100:2(IDX:4-5)", 2, ""},
           Case{"gpu:tesla:2,gpu:kepler:2", 4, ""},
           Case{"gpu:2g.10gb:1", 1, "2g.10gb"},
           Case{"gpu:a100", 1, "a100"},
           Case{"gpu", 1, ""},
           Case{"gpu(IDX:0-2)", 3, ""},
           Case{"nic:2,shard:8", 0, ""},
           Case{"gres:gpu:2", 2, ""},
           Case{"gres:gpu:a100:2", 2, "a100"},
           Case{"gres:gpu", 1, ""},
           Case{"gres:gpu:1,gres:nic:3", 1, ""},
           Case{"gres/gpu:2", 2, ""},
           Case{"gres/gpu=2", 2, ""},
           Case{"gres/gpu:h100=2", 2, "h100"},
           Case{"cpu=4,mem=1G,node=2,billing=4,gres/gpu=16", 16, ""},
           Case{"cpu=4,gres/gpu=16,gres/gpu:a100=16", 16, "a100"},
           Case{"gpu:1K", 1024, ""},
           Case{"gpu:99999999999999999999", 1, "99999999999999999999"},
           Case{"gpu:", 1, ""},
           Case{":::", 0, ""},
           Case{"gpu:a:b:c:1", 0, ""},
       }) {
    const GpuCount gpus = gpus_in(c.text);
    EXPECT_EQ(gpus.count, c.gpus) << c.text;
    EXPECT_EQ(gpus.type, c.type) << c.text;
  }
}

TEST(ParseGres, KeepsIndices) {
  const auto entries = parse_gres("gpu:a100:3(IDX:0,2-3),nic:1");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_THAT(entries[0].indices, ElementsAre(0, 2, 3));
  EXPECT_EQ(entries[1].name, "nic");
}

TEST(ParseGres, SurvivesAnything) {
  std::mt19937 random(1);
  const std::string_view alphabet = "gpures:/=,;()0123456789-KMIDX a";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = random() % 30; n > 0; --n) text += alphabet[random() % alphabet.size()];
    EXPECT_GE(gpus_in(text).count, 0) << text;
  }
}

TEST(RequestedGpus, MultipliesByWhatTheRequestIsPer) {
  EXPECT_EQ(requested_gpus({.per_job = "gres:gpu:6", .per_node = "gres:gpu:4", .nodes = 2}).count,
            6);
  EXPECT_EQ(requested_gpus({.per_node = "gres:gpu:4", .nodes = 2}).count, 8);
  EXPECT_EQ(requested_gpus({.per_node = "gres:gpu:a100:4", .nodes = 3}).type, "a100");
  EXPECT_EQ(requested_gpus({.per_task = "gres:gpu:1", .nodes = 2, .tasks = 5}).count, 5);
  EXPECT_EQ(requested_gpus({.per_task = "gres:gpu:2", .nodes = 2, .tasks_per_node = 4}).count, 16);
  EXPECT_EQ(requested_gpus({.per_task = "gres:gpu:2"}).count, 2);
  EXPECT_EQ(requested_gpus({.per_socket = "gres:gpu:2", .nodes = 2, .sockets_per_node = 2}).count,
            8);
  EXPECT_EQ(requested_gpus({.per_node = "gres:nic:1", .nodes = 2}).count, 0);
  EXPECT_EQ(requested_gpus({}).count, 0);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
