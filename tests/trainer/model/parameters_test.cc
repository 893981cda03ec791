// SPDX-License-Identifier: MIT
#include "trainer/model/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace flextrain::trainer {
namespace {

ModelConfig small_model() {
  ModelConfig model;
  model.layers = 3;
  model.hidden = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn = 40;
  model.vocab = 50;
  return model;
}

TEST(Parameters, AreContiguousAndNamedOnce) {
  for (bool tied : {false, true}) {
    ModelConfig model = small_model();
    model.tied_head = tied;
    int64_t total = 0;
    for (int layer = 0; layer <= 4; ++layer) {
      std::set<std::string> names;
      int64_t offset = 0;
      for (const Parameter& p : layer_parameters(model, layer)) {
        EXPECT_TRUE(names.insert(p.name).second) << p.name;
        EXPECT_EQ(p.offset, offset);
        offset += p.size;
        EXPECT_EQ(p.decay, p.shape.size() == 2) << p.name;
      }
      EXPECT_EQ(parameter_count(layer_parameters(model, layer)), offset);
      total += offset;
    }
    const int64_t block = 2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 40;
    EXPECT_EQ(total, 50 * 32 * (tied ? 1 : 2) + 32 + 3 * block);
  }
}

TEST(InitialValues, AreAFunctionOfSeedLayerAndName) {
  const Parameter p = layer_parameters(small_model(), 1)[1];
  Parameter renamed = p;
  renamed.name = "attention.wk.weight";
  const auto values = initial_values(p, 1, 1);
  EXPECT_EQ(values, initial_values(p, 1, 1));
  EXPECT_NE(values, initial_values(p, 2, 1));
  EXPECT_NE(values, initial_values(p, 1, 2));
  EXPECT_NE(values, initial_values(renamed, 1, 1));
}

TEST(InitialValues, AreNormalWithTheAskedDeviation) {
  Parameter p;
  p.name = "x";
  p.size = 200000;
  p.init_std = 0.02;
  double sum = 0, squares = 0, fourth = 0;
  for (float v : initial_values(p, 3, 0)) {
    const double z = v / 0.02;
    sum += z, squares += z * z, fourth += z * z * z * z;
  }
  EXPECT_NEAR(sum / 200000, 0, 0.01);
  EXPECT_NEAR(squares / 200000, 1, 0.01);
  EXPECT_NEAR(fourth / 200000, 3 - 1.2 / 8, 0.1);  // eight uniforms: excess kurtosis -1.2/8
}

TEST(InitialValues, NormsStartAtOne) {
  for (float v : initial_values(layer_parameters(small_model(), 2)[0], 1, 2)) EXPECT_EQ(v, 1.0f);
}

}  // namespace
}  // namespace flextrain::trainer
