// SPDX-License-Identifier: MIT
// The block of multi-token prediction: against the readable backend, against finite differences of
// its own forward, and taken apart.
#include <cmath>

#include "tests/trainer/backend/backend_fixture.h"
#include "trainer/model/layer_math.h"

namespace flextrain::trainer {
namespace {

constexpr int kMicroBatch = 2, kBlock = 4;  // two transformer layers, head 3, block 4, loss 5

ModelConfig small_model() {
  ModelConfig model;
  model.layers = 2;
  model.hidden = 16;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn = 20;
  model.vocab = 23;
  model.sequence = 6;
  model.mtp_num_layers = 1;
  return model;
}

// Shifted by one: the last of each sequence has no token ahead.
const std::vector<int32_t> kAhead = {22, 0, 3, 7, 7, -1, 4, 5, 6, 19, 0, -1};

Floats layer_values(int layer) {
  Floats flat;
  for (Parameter p : layer_parameters(small_model(), layer)) {
    if (p.init_std > 0) p.init_std = 0.3;
    const Floats values = initial_values(p, 5, layer);
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return flat;
}

struct MtpRun {
  Floats out, x_grad, gradients, table_gradients;
};

// One forward and backward in fp32; `split` in two parts, with another micro-batch between.
MtpRun run(Backend& b, const Floats& weights, const Floats& table, const Floats& x,
           const Floats& out_grad, Recompute recompute = Recompute::kNone, bool split = false) {
  const auto math =
      LayerMath::make(b, small_model(), kMicroBatch, {.block = true, .head = true, .mtp = true})
          .value();
  const int64_t size = math->activation_size();
  GradientSink sink(b, planner::Numerics::kFp32, {}, {});
  const Tensor w = put(b, weights), in = put(b, x), out = space(b, size), grad = put(b, out_grad);
  const Tensor gradients = space(b, w.size()), kept = space(b, math->mtp_kept_size());
  const LayerMath::MtpTokens ahead{put(b, kAhead), put(b, table),
                                   space(b, static_cast<int64_t>(table.size()))};
  const SavedTensors saved{space(b, math->saved_size(kBlock, recompute)),
                           space(b, math->again_size(kBlock, recompute)), recompute};
  math->mtp_forward(w, in, ahead, out, saved);
  if (recompute != Recompute::kNone) {
    b.fill_zero(saved.again);
    math->mtp_recompute(w, saved);
  }
  if (split) {
    math->mtp_backward_input(w, in, ahead, saved, grad, kept, gradients, sink, true);
    const SavedTensors other{space(b, math->saved_size(kBlock)), {}, Recompute::kNone};
    math->mtp_forward(w, grad, ahead, space(b, size), other);
    math->mtp_backward_weight(w, in, ahead, saved, kept, gradients, sink, true);
  } else {
    math->mtp_backward(w, in, ahead, saved, grad, gradients, sink, true);
  }
  return {get(b, out), get(b, grad), get(b, gradients), get(b, ahead.table_gradient)};
}

int64_t activations() { return kMicroBatch * 6 * 16; }

TEST(MtpBlock, CpuAgreesWithTheReference) {
  const auto cpu = cpu_backend(), reference = make_reference_backend();
  const Floats w = layer_values(kBlock), table = layer_values(0),
               x = random_floats(activations(), 1), r = random_floats(activations(), 2);
  const MtpRun got = run(*cpu, w, table, x, r), wanted = run(*reference, w, table, x, r);
  expect_close(got.out, wanted.out, 5e-6, "out");
  expect_close(got.x_grad, wanted.x_grad, 2e-5, "x_grad");
  expect_close(got.gradients, wanted.gradients, 2e-5, "gradients");
  expect_close(got.table_gradients, wanted.table_gradients, 2e-5, "table_gradients");
}

TEST(MtpBlock, SplitAndRecomputedIsTheSameBits) {
  const auto cpu = cpu_backend();
  const Floats w = layer_values(kBlock), table = layer_values(0),
               x = random_floats(activations(), 1), r = random_floats(activations(), 2);
  const MtpRun plain = run(*cpu, w, table, x, r);
  for (auto recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
    for (bool split : {false, true}) {
      const MtpRun other = run(*cpu, w, table, x, r, recompute, split);
      EXPECT_EQ(other.out, plain.out);
      EXPECT_EQ(other.x_grad, plain.x_grad);
      EXPECT_EQ(other.gradients, plain.gradients);
      EXPECT_EQ(other.table_gradients, plain.table_gradients);
    }
}

TEST(MtpBlock, AgreesWithFiniteDifferences) {
  const Floats w = layer_values(kBlock), table = layer_values(0),
               x = random_floats(activations(), 1), r = random_floats(activations(), 2);
  const auto loss = [&](const Floats& weights, const Floats& rows, const Floats& in) {
    const auto backend = cpu_backend();
    const Floats out = run(*backend, weights, rows, in, r).out;
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += double{out[i]} * r[i];
    return sum;
  };
  constexpr float kStep = 1.0f / 128;
  const auto slope = [&](Floats at, size_t i, const std::function<double(const Floats&)>& f) {
    const float here = at[i];
    at[i] = here + kStep;
    const double up = f(at);
    at[i] = here - kStep;
    return (up - f(at)) / (2 * kStep);
  };
  const auto backend = cpu_backend();
  const MtpRun got = run(*backend, w, table, x, r);
  for (size_t i = 0; i < x.size(); i += 17)
    EXPECT_NEAR(got.x_grad[i], slope(x, i, [&](const Floats& at) { return loss(w, table, at); }),
                2e-2)
        << "x " << i;
  for (size_t i = 0; i < table.size(); i += 19)
    EXPECT_NEAR(got.table_gradients[i],
                slope(table, i, [&](const Floats& at) { return loss(w, at, x); }), 3e-2)
        << "table " << i;
  for (const Parameter& p : layer_parameters(small_model(), kBlock))
    for (int64_t k = 0; k < p.size; k += p.size / 4) {
      const auto i = static_cast<size_t>(p.offset + k);
      EXPECT_NEAR(got.gradients[i],
                  slope(w, i, [&](const Floats& at) { return loss(at, table, x); }), 2e-2)
          << p.name << " " << k;
    }
}

}  // namespace
}  // namespace flextrain::trainer
