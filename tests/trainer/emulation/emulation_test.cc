// SPDX-License-Identifier: MIT
// The emulated cluster's parts: ranks in virtual time, links, the files that describe it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "trainer/emulation/emulated_communicator.h"

namespace flextrain::trainer {
namespace {

using ::testing::HasSubstr;

ClusterProfile plain_cluster() {
  ClusterProfile cluster;
  cluster.gpus_per_node = 2;
  cluster.adapters_per_node = 1;
  cluster.near_gb_per_s = 10, cluster.near_latency_us = 0;
  cluster.adapter_gb_per_s = 1, cluster.far_latency_us = 0;
  return cluster;
}

TEST(RankScheduler, TheRankFurthestBehindGoesFirst) {
  RankScheduler scheduler;
  std::vector<int> order;
  const Status status = scheduler.run(3, [&](int rank) -> Status {
    for (int turn = 0; turn < 2; ++turn) {
      scheduler.advance(3 - rank);  // rank 2 is the quickest
      RETURN_IF_ERROR(scheduler.wait_for_turn());
      order.push_back(rank);
    }
    return {};
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
  // At 1, 2, 2, 3, 4, 6: who runs goes on at equal times.
  EXPECT_EQ(order, (std::vector<int>{2, 2, 1, 0, 1, 0}));
}

TEST(RankScheduler, RanksThatWaitForEachOtherAreNamed) {
  RankScheduler scheduler;
  const Status status = scheduler.run(
      4, [&](int rank) -> Status { return rank == 2 ? Status() : scheduler.block(); });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("wait for each other for ever: 0, 1, 3"));
}

TEST(RankScheduler, OnesErrorEndsTheOthers) {
  RankScheduler scheduler;
  const Status status = scheduler.run(3, [&](int rank) -> Status {
    if (rank == 1) return data_loss("broken");
    return scheduler.block();
  });
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("rank 1: broken"));
}

TEST(NetworkModel, WhoSharesALinkWaits) {
  const ClusterProfile cluster = plain_cluster();
  NetworkModel network(cluster, 8);
  constexpr double kGB = 1e9;
  EXPECT_DOUBLE_EQ(network.transfer(0, 1, kGB, 0), 0.1);        // within node 0
  EXPECT_DOUBLE_EQ(network.transfer(0, 2, kGB, 1), 2);          // by node 0's adapter
  EXPECT_DOUBLE_EQ(network.transfer(1, 4, kGB, 1.5), 3);        // after the one before
  EXPECT_DOUBLE_EQ(network.transfer(2, 0, kGB, 1.5), 2.5);      // the other way is free
  EXPECT_DOUBLE_EQ(network.transfer(6, 7, kGB, 1.5), 1.6);      // a node of its own
  EXPECT_DOUBLE_EQ(network.all_reduce({0, 1}, kGB, 10), 10.1);  // 2(d-1)/d = 1
  EXPECT_DOUBLE_EQ(network.all_reduce({0, 2, 4, 6}, kGB, 20), 21.5);
}

TEST(NetworkModel, AnUplinkCarriesWhatItsSwitchSends) {
  ClusterProfile cluster = plain_cluster();
  cluster.nodes_per_switch = 2;
  cluster.uplink_gb_per_s = 1.5;  // for two adapters of 1
  NetworkModel network(cluster, 8);
  EXPECT_DOUBLE_EQ(network.transfer(0, 2, 3e9, 0), 3);  // below the switch
  EXPECT_DOUBLE_EQ(network.transfer(0, 4, 3e9, 10), 13);
  EXPECT_DOUBLE_EQ(network.transfer(2, 6, 3e9, 10), 14);  // the uplink is busy until 12
}

TEST(EmulatedCommunicator, ControlDataTravelAndTensorsTakeTime) {
  const ClusterProfile cluster = plain_cluster();
  RankScheduler scheduler;
  EmulatedFabric fabric(cluster, scheduler, 4);
  const Status status = scheduler.run(4, [&](int rank) -> Status {
    const auto world = fabric.world();
    EXPECT_EQ(world->rank(), rank);
    EXPECT_EQ(world->node_name(), rank < 2 ? "node-0" : "node-1");
    std::array<double, 2> sums = {static_cast<double>(rank), 1};
    RETURN_IF_ERROR(world->all_reduce(std::span<double>(sums), ReduceOp::kSum));
    EXPECT_EQ(sums, (std::array<double, 2>{6, 4}));
    std::array<int64_t, 1> most = {rank};
    RETURN_IF_ERROR(world->all_reduce(std::span<int64_t>(most), ReduceOp::kMax));
    EXPECT_EQ(most[0], 3);
    std::string text = rank == 1 ? "said" : "";
    RETURN_IF_ERROR(world->broadcast_bytes(text, 1));
    EXPECT_EQ(text, "said");
    ASSIGN_OR_RETURN(const auto all, world->gather_bytes(fmt::format("r{}", rank), 2));
    EXPECT_EQ(all.size(), rank == 2 ? 4u : 0u);
    EXPECT_EQ(rank == 2 ? all[3] : "", rank == 2 ? "r3" : "");
    ASSIGN_OR_RETURN(
        const auto pair,
        world->subgroup(rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3}, 7));
    EXPECT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->rank(), rank / 2);
    RETURN_IF_ERROR(world->barrier());
    // Both sides leave when the message has arrived.
    if (rank > 1) return {};
    const double before = scheduler.now();
    std::vector<float> data(250'000'000 / 100);
    scheduler.advance(rank == 0 ? 0 : 0.5);
    RETURN_IF_ERROR(rank == 0 ? world->send(data, 1, 3) : world->recv(data, 0, 3));
    EXPECT_NEAR(scheduler.now() - before, 0.5 + 0.001, 1e-9);
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(ClusterProfile, ReadsItsFilesAndNamesMistakes) {
  const auto mistake = [](std::string_view text) {
    return parse_cluster_profile(text, "c.toml").status().message();
  };
  EXPECT_THAT(mistake("[device]\nmemory = 3\n"), HasSubstr("c.toml:2: unknown key 'memory'"));
  EXPECT_THAT(mistake("[device]\nmatmul_efficiency = 1.5\n"),
              HasSubstr("c.toml:2: device.matmul_efficiency must be a number above 0 up to 1"));
  EXPECT_THAT(mistake("[network]\ngpus_per_node = 2\nadapters_per_node = 3\n"),
              HasSubstr("adapters_per_node (3) must not be above gpus_per_node (2)"));
  EXPECT_EQ(read_cluster_profile("/nowhere.toml").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace flextrain::trainer
