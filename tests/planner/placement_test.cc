// SPDX-License-Identifier: MIT
#include "planner/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

namespace flextrain::planner {
namespace {

// Ids in order of execution over the pipeline.
std::vector<LayerId> in_order(const LayerPlacement& placement) {
  std::vector<LayerId> ids;
  for (size_t chunk = 0; chunk < placement[0].size(); ++chunk) {
    for (const auto& stage : placement) {
      ids.insert(ids.end(), stage[chunk].begin(), stage[chunk].end());
    }
  }
  return ids;
}

double largest_stage(const LayerPlacement& placement, const std::vector<double>& costs) {
  double largest = 0;
  for (const auto& stage : placement) {
    double sum = 0;
    for (const auto& chunk : stage) {
      for (const LayerId layer : chunk) sum += layer == kNoOp ? 0 : costs[layer];
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

// Layers conserved and in order, embedding first, head last, the same number of
// transformer-or-No-Op positions in every chunk, at least one.
void check_shape(const LayerPlacement& placement, int layers, int stages, int virtual_stages) {
  SCOPED_TRACE(fmt::format("L {} p {} v {}", layers, stages, virtual_stages));
  ASSERT_EQ(placement.size(), static_cast<size_t>(stages));
  std::vector<LayerId> real;
  for (const LayerId layer : in_order(placement)) {
    if (layer != kNoOp) real.push_back(layer);
  }
  ASSERT_EQ(real.size(), static_cast<size_t>(layers) + 2);
  for (int layer = 0; layer < layers + 2; ++layer) ASSERT_EQ(real[layer], layer);
  ASSERT_EQ(placement.front().front().front(), 0);
  ASSERT_EQ(placement.back().back().back(), layers + 1);
  size_t positions = 0, no_ops = 0;
  for (int stage = 0; stage < stages; ++stage) {
    ASSERT_EQ(placement[stage].size(), static_cast<size_t>(virtual_stages));
    for (int chunk = 0; chunk < virtual_stages; ++chunk) {
      size_t here = placement[stage][chunk].size();
      if (stage == 0 && chunk == 0) --here;
      if (stage == stages - 1 && chunk == virtual_stages - 1) --here;
      if (positions == 0) positions = here;
      ASSERT_EQ(here, positions) << "stage " << stage << " chunk " << chunk;
      no_ops += std::count(placement[stage][chunk].begin(), placement[stage][chunk].end(), kNoOp);
    }
  }
  ASSERT_GE(positions, 1u);
  ASSERT_EQ(layers + no_ops, positions * stages * virtual_stages);
}

#ifdef __SANITIZE_ADDRESS__
constexpr int kFullGrid = 1;
#else
constexpr int kFullGrid = 3;
#endif

TEST(Placement, EveryLayerCountDegreeAndVirtualStageCount) {
  for (const int virtual_stages : {1, 2, 3, 5}) {
    for (int layers = 1; layers <= 100; ++layers) {
      for (int stages = 1; stages <= layers; ++stages) {
        // On a grid only where the time, which goes with the number of chunks, is long.
        if (virtual_stages > kFullGrid && (layers % 9 != 1 || stages % 4 != 1)) continue;
        const auto placement = place_layers(layers, stages, virtual_stages, {});
        ASSERT_TRUE(placement.ok()) << placement.status().to_string();
        check_shape(*placement, layers, stages, virtual_stages);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Placement, RandomCostsKeepTheShape) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> cost(0.0, 1.0);
  for (int round = 0; round < 400; ++round) {
    const int layers = 1 + static_cast<int>(random() % 60);
    const int stages = 1 + static_cast<int>(random() % layers);
    const int virtual_stages = 1 + static_cast<int>(random() % 3);
    std::vector<double> costs(layers + 2);
    for (double& value : costs) value = random() % 10 == 0 ? 0 : cost(random);
    costs[1] = 1;
    const auto placement = place_layers(layers, stages, virtual_stages, costs);
    ASSERT_TRUE(placement.ok()) << placement.status().to_string();
    check_shape(*placement, layers, stages, virtual_stages);
    if (HasFatalFailure()) return;
  }
}

// Smallest possible largest stage cost by trying every contiguous partition.
double brute_force(const std::vector<double>& costs, int stages, int virtual_stages) {
  const int units = static_cast<int>(costs.size());
  const int chunks = stages * virtual_stages;
  double best = std::numeric_limits<double>::infinity();
  std::vector<double> load(stages, 0.0);
  const std::function<void(int, int)> place = [&](int chunk, int begin) {
    if (chunk == chunks) {
      if (begin == units) best = std::min(best, *std::max_element(load.begin(), load.end()));
      return;
    }
    for (int end = begin; end <= units; ++end) {
      if ((chunk == 0 && end == 0) || (chunk < chunks - 1 && end == units)) continue;
      double sum = 0;
      for (int unit = begin; unit < end; ++unit) sum += costs[unit];
      load[chunk % stages] += sum;
      place(chunk + 1, end);
      load[chunk % stages] -= sum;
    }
  };
  place(0, 0);
  return best;
}

TEST(Placement, ContiguousPartitionIsOptimal) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> cost(0.1, 3.0);
  for (int round = 0; round < 300; ++round) {
    const int layers = 1 + static_cast<int>(random() % 9);
    const int stages = 1 + static_cast<int>(random() % std::min(layers, 5));
    std::vector<double> costs(layers + 2);
    for (double& value : costs) value = cost(random);
    const auto placement = place_layers(layers, stages, 1, costs);
    ASSERT_TRUE(placement.ok());
    EXPECT_NEAR(largest_stage(*placement, costs), brute_force(costs, stages, 1), 1e-6)
        << "L " << layers << " p " << stages;
  }
}

// With virtual stages the partition is a heuristic: bounded by the chunks' own limit.
TEST(Placement, VirtualStagesAreNearTheOptimum) {
  std::mt19937 random(13);
  std::uniform_real_distribution<double> cost(0.5, 1.5);
  double worst = 1;
  for (int round = 0; round < 100; ++round) {
    const int layers = 4 + static_cast<int>(random() % 5);
    const int stages = 2 + static_cast<int>(random() % 2);
    std::vector<double> costs(layers + 2);
    for (double& value : costs) value = cost(random);
    const auto placement = place_layers(layers, stages, 2, costs);
    ASSERT_TRUE(placement.ok());
    worst = std::max(worst, largest_stage(*placement, costs) / brute_force(costs, stages, 2));
  }
  RecordProperty("worst_ratio", std::to_string(worst));
  EXPECT_LE(worst, 1.35);
}

TEST(Placement, UniformLayersSpreadEvenlyOverVirtualStages) {
  // 24 layers on 4 stages × 2 chunks, ends free of cost: 6 layers a stage, 3 a chunk, no No-Op.
  std::vector<double> costs(26, 1.0);
  costs.front() = costs.back() = 0;
  const auto placement = place_layers(24, 4, 2, costs);
  ASSERT_TRUE(placement.ok());
  const auto ids = in_order(*placement);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kNoOp), 0);
}

TEST(Placement, FlexTrainsExampleNeedsTwoNoOps) {
  // 6 layers, PP 4: 8 positions.
  const auto placement = place_layers(6, 4, 1, {});
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(*placement, (LayerPlacement{{{0, 1, kNoOp}}, {{2, 3}}, {{4, 5}}, {{6, kNoOp, 7}}}));
}

TEST(Placement, ASlowLayerGetsCompany) {
  std::vector<double> costs(10, 1.0);
  const auto even = place_layers(8, 4, 1, costs);
  costs[3] = 3.0;
  const auto slow = place_layers(8, 4, 1, costs);
  ASSERT_TRUE(even.ok() && slow.ok());
  EXPECT_NE(*even, *slow);
  EXPECT_LT(largest_stage(*slow, costs), largest_stage(*even, costs));
}

TEST(Placement, RefusesWhatCannotBePlaced) {
  struct Case {
    int layers, stages, virtual_stages;
    std::vector<double> costs;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : std::vector<Case>{{0, 1, 1, {}},
                                         {-3, 1, 1, {}},
                                         {4, 5, 1, {}},
                                         {4, 0, 1, {}},
                                         {4, 2, 0, {}},
                                         {4, 2, 100000, {}},
                                         {1000000000, 1, 1, {}},
                                         {2, 1, 1, {1, 1, 1}},
                                         {2, 1, 1, {1, 1, -1, 1}},
                                         {2, 1, 1, {1, nan, 1, 1}},
                                         {2, 1, 1, {0, 0, 0, 0}}}) {
    const auto placement = place_layers(c.layers, c.stages, c.virtual_stages, c.costs);
    ASSERT_FALSE(placement.ok()) << c.layers << ' ' << c.stages << ' ' << c.virtual_stages;
    EXPECT_EQ(placement.status().code(), StatusCode::kInvalidArgument);
  }
}

PlacementRequest mtp_request(int layers, int heads, int stages) {
  PlacementRequest request;
  request.num_transformer_layers = layers;
  request.num_mtp_heads = heads;
  request.pipeline_parallel = stages;
  return request;
}

// FlexTrain's example: of 8 positions on 4 stages the last and the third-last hold the embedding
// and cross-entropy of the two MTP heads, each beside its block. (The head, 5, takes no position;
// it stands where it balances best.)
TEST(Placement, MtpLossesTakeTheLastAndThirdLastPosition) {
  const auto placement = place_layers(mtp_request(4, 2, 4));
  ASSERT_TRUE(placement.ok()) << placement.status().to_string();
  EXPECT_EQ(*placement, (LayerPlacement{{{0, 1, 2}}, {{3, 4}}, {{5, 6, 7}}, {{8, 9}}}));
}

// Every layer once and in order, equal positions, for the layer counts of real models.
TEST(Placement, RealDepthsOverManyStages) {
  for (const int layers : {43, 61, 78}) {
    for (const int heads : {0, 1, 2}) {
      for (int stages = 2; stages <= 16; ++stages) {
        for (const ChunkOrder order : {ChunkOrder::kLoop, ChunkOrder::kV}) {
          PlacementRequest request = mtp_request(layers, heads, stages);
          request.order = order;
          request.virtual_stages = order == ChunkOrder::kV ? 2 : 1;
          const auto placement = place_layers(request);
          ASSERT_TRUE(placement.ok()) << placement.status().to_string();
          RegularLayout layout;
          layout.num_transformer_layers = layers;
          layout.num_mtp_heads = heads;
          layout.pipeline_parallel = stages;
          layout.virtual_stages = request.virtual_stages;
          layout.global_batch = 2;
          layout.schedule = order == ChunkOrder::kV ? "v-shape" : "zb-1p";
          const auto plan = make_regular_plan(layout);
          ASSERT_TRUE(plan.ok()) << plan.status().to_string();
          std::set<size_t> positions;
          for (const auto& stage : *placement) {
            for (const auto& chunk : stage) {
              positions.insert(chunk.size() -
                               std::count_if(chunk.begin(), chunk.end(), [&](LayerId id) {
                                 return id == 0 || id == layers + 1;
                               }));
            }
          }
          EXPECT_EQ(positions.size(), 1u) << layers << ' ' << heads << ' ' << stages;
        }
      }
    }
  }
}

TEST(Placement, EmptyAndLossOnlyStages) {
  PlacementRequest request = mtp_request(2, 0, 4);
  EXPECT_EQ(place_layers(request).status().code(), StatusCode::kInvalidArgument);
  request.empty_stages = true;
  const auto sparse = place_layers(request);
  ASSERT_TRUE(sparse.ok()) << sparse.status().to_string();
  EXPECT_EQ(sparse->size(), 4u);
  // A head as dear as all layers gets a stage of its own.
  request = mtp_request(4, 0, 3);
  request.costs = {0.1, 1, 1, 1, 1, 2.2};
  const auto loss_only = place_layers(request);
  ASSERT_TRUE(loss_only.ok());
  EXPECT_EQ((*loss_only)[2], (std::vector<std::vector<LayerId>>{{kNoOp, kNoOp, 5}}));
}

TEST(Placement, ForbiddenNoOps) {
  PlacementRequest request = mtp_request(6, 0, 4);
  request.no_ops = false;
  const auto placement = place_layers(request);
  ASSERT_TRUE(placement.ok()) << placement.status().to_string();
  for (const auto& stage : *placement) {
    EXPECT_EQ(std::count(stage[0].begin(), stage[0].end(), kNoOp), 0);
  }
  request.pipeline_parallel = 7;
  EXPECT_THAT(place_layers(request).status().message(), ::testing::HasSubstr("No-Ops are forbid"));
  request.pipeline_parallel = 3;
  request.virtual_stages = 3;
  EXPECT_EQ(place_layers(request).status().message(),
            "placement: 9 chunks for 8 layers, and No-Ops are forbidden");
}

// Where there are as many layers as chunks every chunk gets one, whatever they cost.
TEST(Placement, ForbiddenNoOpsLeaveNoChunkEmpty) {
  std::mt19937 random(4);
  for (int round = 0; round < 400; ++round) {
    PlacementRequest request;
    request.num_transformer_layers = 1 + static_cast<int>(random() % 12);
    request.num_mtp_heads = static_cast<int>(random() % 3);
    const int blocks = request.num_transformer_layers + request.num_mtp_heads;
    request.pipeline_parallel = 1 + static_cast<int>(random() % blocks);
    request.virtual_stages =
        request.pipeline_parallel == 1 ? 1 : 1 + static_cast<int>(random() % 3);
    if (request.virtual_stages == 2 && random() % 2 == 0) request.order = ChunkOrder::kV;
    request.no_ops = false;
    const int units = num_layers(request.num_transformer_layers, request.num_mtp_heads);
    if (round % 4 > 0) {
      for (int unit = 0; unit < units; ++unit) {
        request.costs.push_back(random() % 3 == 0 ? 0.0 : std::pow(10.0, random() % 7));
      }
      request.costs[random() % units] = 1;
    }
    const int chunks = request.pipeline_parallel * request.virtual_stages;
    const auto placement = place_layers(request);
    ASSERT_EQ(placement.ok(), chunks <= units) << placement.status().to_string();
    if (!placement.ok()) continue;
    for (const auto& stage : *placement) {
      for (const auto& chunk : stage) {
        EXPECT_FALSE(chunk.empty()) << "round " << round;
        EXPECT_EQ(std::count(chunk.begin(), chunk.end(), kNoOp), 0) << "round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace flextrain::planner
