// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/digest.h"

#include <bit>
#include <set>

#include "tests/trainer/checkpoint/checkpoint_fixture.h"

namespace flextrain::trainer {
namespace {

std::string digest_of(const std::vector<LayerState>& layers, const TrainingCursor& cursor) {
  std::vector<LayerEntry> entries;
  for (const LayerState& layer : layers) {
    const auto encoded = encode_layer(layer);
    EXPECT_TRUE(encoded.ok());
    entries.push_back(encoded->entry);
  }
  return state_digest(entries, cursor);
}

// One flipped bit in any weight, any moment, the cursor or the scale gives another digest.
TEST(Digest, EveryBitCounts) {
  const std::vector<LayerState> layers = {make_layer(0, 1), make_layer(1, 1)};
  const TrainingCursor cursor{10, 80, 44, 1};
  const std::string base = digest_of(layers, cursor);
  EXPECT_EQ(base.size(), 32u);
  std::set<std::string> all = {base};
  size_t count = 1;
  for (size_t l = 0; l < layers.size(); ++l) {
    for (size_t t = 0; t < layers[l].tensors.size(); ++t) {
      for (size_t i = 0; i < layers[l].tensors[t].values.size(); ++i) {
        for (const int bit : {0, 17, 31}) {
          std::vector<LayerState> changed = layers;
          float& value = changed[l].tensors[t].values[i];
          value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ (1u << bit));
          all.insert(digest_of(changed, cursor));
          ++count;
        }
      }
    }
  }
  for (int bit = 0; bit < 40; ++bit) {
    TrainingCursor changed = cursor;
    changed.consumed_samples ^= int64_t{1} << bit;
    all.insert(digest_of(layers, changed));
    ++count;
  }
  for (const TrainingCursor changed : {TrainingCursor{10, 80, 36, 1}, TrainingCursor{11, 80, 44, 1},
                                       TrainingCursor{10, 80, 44, 2}}) {
    all.insert(digest_of(layers, changed));
    ++count;
  }
  EXPECT_EQ(all.size(), count);  // all differ, from the base and from each other
}

TEST(Digest, OrderOfLayersDoesNotCount) {
  const LayerState a = make_layer(0, 1), b = make_layer(1, 2);
  EXPECT_EQ(digest_of({a, b}, {}), digest_of({b, a}, {}));
}

TEST(Digest, MinusZeroIsNotZero) {
  LayerState a = make_layer(0, 1), b = a;
  a.tensors[0].values[0] = 0.0f;
  b.tensors[0].values[0] = -0.0f;
  EXPECT_NE(digest_of({a}, {}), digest_of({b}, {}));
}

// Pinned: a change of the digest makes runs of different releases incomparable.
TEST(Digest, IsPinned) {
  EXPECT_EQ(digest_of({make_layer(0, 1)}, {10, 80, 44, 1}), "f31b5ce033fcc391352e1f344b1c0e11");
}

TEST(LayerFile, RejectsShapesThatDoNotFit) {
  LayerState state = make_layer(0, 1);
  state.tensors[0].shape = {2, 4};
  EXPECT_FALSE(encode_layer(state).ok());
  state = make_layer(0, 1);
  state.tensors[1].name = state.tensors[0].name;
  EXPECT_FALSE(encode_layer(state).ok());
}

TEST(LayerFile, EmptyTensorsAndScalarsSurvive) {
  LayerState state;
  state.layer = 7;
  state.tensors.push_back({"empty", TensorRole::kWeight, {0, 4}, {}});
  state.tensors.push_back({"scalar", TensorRole::kWeight, {}, {2.5f}});
  const auto encoded = encode_layer(state);
  ASSERT_TRUE(encoded.ok());
  const auto decoded = decode_layer(encoded->bytes, encoded->entry);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->tensors[1].values, std::vector<float>{2.5f});
  EXPECT_TRUE(decoded->tensors[0].values.empty());
}

}  // namespace
}  // namespace flextrain::trainer
