// SPDX-License-Identifier: MIT
// Whole layers: the tuned backend against the readable one, and both against finite differences of
// the layer's own forward.
#include "trainer/model/layer_math.h"

#include <cmath>

#include "tests/trainer/backend/backend_fixture.h"

namespace flextrain::trainer {
namespace {

ModelConfig small_model() {
  ModelConfig model;
  model.layers = 2;
  model.hidden = 16;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn = 20;
  model.vocab = 23;
  model.sequence = 6;
  return model;
}
constexpr int kMicroBatch = 2;
constexpr float kLossScale = 1.0f / 12;

Floats layer_values(int layer) {
  Floats flat;
  for (Parameter p : layer_parameters(small_model(), layer)) {
    if (p.init_std > 0) p.init_std = 0.3;  // large enough for every path to matter
    const Floats values = initial_values(p, 5, layer);
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return flat;
}

// What one forward and backward of a layer gives.
struct LayerRun {
  Floats out, x_grad, gradients;
  double loss = 0;
};

struct How {
  Recompute recompute = Recompute::kNone;
  bool split = false;  // backward in two parts
};

class OneLayer {
 public:
  OneLayer(Backend& b, planner::Numerics numerics) : b_(b), numerics_(numerics) {
    math_ = LayerMath::make(b, small_model(), kMicroBatch, {true, true}).value();
    status_ = space(b, 1, DType::kInt64);
    sink_ =
        std::make_unique<GradientSink>(b, numerics, space(b, math_->largest_gradient()), status_);
    sink_->set_fold({40, 56});
  }
  int64_t activations() const { return math_->activation_size(); }

  LayerRun block(const Floats& weights, const Floats& x, const Floats& out_grad, int repeats = 1,
                 How how = {}) {
    const Tensor w = put(b_, weights), in = put(b_, x), out = space(b_, activations());
    const SavedTensors saved{space(b_, math_->saved_size(1, how.recompute)),
                             space(b_, math_->again_size(1, how.recompute)), how.recompute};
    const Tensor kept = space(b_, math_->block_kept_size());
    const Tensor gradients = space(b_, w.size(), gradient_type());
    LayerRun run;
    for (int i = 0; i < repeats; ++i) {
      math_->block_forward(w, in, out, saved);
      b_.fill_zero(saved.again);  // other micro-batches may have used it
      math_->block_recompute(w, in, saved);
      const Tensor grad = put(b_, out_grad);
      if (how.split) {
        math_->block_backward_input(w, in, saved, grad, kept, gradients, *sink_, i == 0);
        // What the first part left in scratch is not there any more when others came between.
        const Tensor other_out = space(b_, activations());
        const SavedTensors other{space(b_, math_->saved_size(1)), {}, Recompute::kNone};
        math_->block_forward(w, grad, other_out, other);
        math_->block_backward_weight(w, in, saved, kept, gradients, *sink_, i == 0);
      } else {
        math_->block_backward(w, in, saved, grad, gradients, *sink_, i == 0);
      }
      run.x_grad = get(b_, grad);
    }
    run.out = get(b_, out);
    run.gradients = gradient_values(gradients);
    return run;
  }

  LayerRun head(const Floats& weights, const Floats& x, const std::vector<int32_t>& targets) {
    const int64_t hidden = small_model().hidden;
    const Tensor w = put(b_, weights), in = put(b_, x), grad = space(b_, activations());
    const Tensor saved = space(b_, math_->saved_size(3)), t = put(b_, targets),
                 loss = space(b_, math_->rows(), DType::kFloat64);
    const Tensor gradients = space(b_, w.size(), gradient_type());
    const int64_t matrix = w.size() - hidden;
    math_->head_forward(w, w.slice(hidden, matrix), in, t, saved, loss, kLossScale, true,
                        gradients.slice(hidden, matrix), sink_.get(), true);
    b_.fill_zero(grad);
    math_->head_backward(w, in, saved, grad, gradients, *sink_, true);
    LayerRun run;
    for (double row : get_doubles(b_, loss)) run.loss += row * kLossScale;
    run.x_grad = get(b_, grad);
    run.gradients = gradient_values(gradients);
    return run;
  }

 private:
  DType gradient_type() const {
    return numerics_ == planner::Numerics::kExact ? DType::kInt64 : DType::kFloat32;
  }
  Floats gradient_values(Tensor gradients) {
    if (numerics_ == planner::Numerics::kFp32) return get(b_, gradients);
    EXPECT_EQ(get_ints(b_, status_)[0], 0);
    Floats values;
    for (int64_t v : get_ints(b_, gradients))
      values.push_back(static_cast<float>(std::ldexp(static_cast<double>(v), -40)));
    return values;
  }
  Backend& b_;
  planner::Numerics numerics_;
  Tensor status_;
  std::unique_ptr<LayerMath> math_;
  std::unique_ptr<GradientSink> sink_;
};

Floats slice(const Floats& flat, const Parameter& p) {
  return {flat.begin() + p.offset, flat.begin() + p.offset + p.size};
}
void expect_gradients_close(const Floats& a, const Floats& b, int layer, double threshold) {
  for (const Parameter& p : layer_parameters(small_model(), layer))
    expect_close(slice(a, p), slice(b, p), threshold, p.name);
}

const std::vector<int32_t> kTargets = {1, 22, 0, -1, 7, 7, 3, 4, 5, 6, 19, -1};

TEST(Block, CpuAgreesWithTheReferenceTensorByTensor) {
  for (auto numerics : {planner::Numerics::kExact, planner::Numerics::kFp32}) {
    const auto cpu = cpu_backend(), reference = make_reference_backend();
    OneLayer a(*cpu, numerics), b(*reference, numerics);
    const Floats w = layer_values(1), x = random_floats(a.activations(), 1),
                 r = random_floats(a.activations(), 2);
    const LayerRun got = a.block(w, x, r), wanted = b.block(w, x, r);
    expect_close(got.out, wanted.out, 3e-6, "out");
    expect_close(got.x_grad, wanted.x_grad, 5e-6, "x_grad");
    expect_gradients_close(got.gradients, wanted.gradients, 1, 1e-5);
  }
}

TEST(Block, TwoMicroBatchesAddUp) {
  for (auto numerics : {planner::Numerics::kExact, planner::Numerics::kFp32}) {
    const auto cpu = cpu_backend();
    OneLayer layer(*cpu, numerics);
    const Floats w = layer_values(1), x = random_floats(layer.activations(), 1),
                 r = random_floats(layer.activations(), 2);
    Floats twice = layer.block(w, x, r).gradients;
    for (float& v : twice) v *= 2;
    expect_gradients_close(layer.block(w, x, r, 2).gradients, twice, 1, 1e-6);
  }
}

TEST(Block, SplitAndRecomputedIsTheSameBits) {
  for (auto numerics : {planner::Numerics::kExact, planner::Numerics::kFp32}) {
    const auto cpu = cpu_backend();
    OneLayer layer(*cpu, numerics);
    const Floats w = layer_values(1), x = random_floats(layer.activations(), 1),
                 r = random_floats(layer.activations(), 2);
    const LayerRun plain = layer.block(w, x, r, 2);
    for (auto recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
      for (bool split : {false, true}) {
        const LayerRun run = layer.block(w, x, r, 2, {recompute, split});
        EXPECT_EQ(run.out, plain.out);
        EXPECT_EQ(run.x_grad, plain.x_grad);
        EXPECT_EQ(run.gradients, plain.gradients);
      }
  }
}

TEST(Block, RecomputationKeepsLess) {
  const auto cpu = cpu_backend();
  const auto math = LayerMath::make(*cpu, small_model(), kMicroBatch, {true, true}).value();
  const int64_t all = math->saved_size(1);
  EXPECT_EQ(math->saved_size(1, Recompute::kFull), 0);
  EXPECT_EQ(math->saved_size(1, Recompute::kSelective), all - math->rows() * 2 * small_model().ffn);
  EXPECT_EQ(math->again_size(1, Recompute::kFull), all);
  EXPECT_EQ(math->again_size(1, Recompute::kNone), 0);
  EXPECT_EQ(math->saved_size(3, Recompute::kFull), math->saved_size(3));  // the head
}

TEST(Block, AgreesWithFiniteDifferences) {
  const auto backend = cpu_backend();
  OneLayer layer(*backend, planner::Numerics::kFp32);
  const Floats w = layer_values(1), x = random_floats(layer.activations(), 1),
               r = random_floats(layer.activations(), 2);
  const LayerRun run = layer.block(w, x, r);
  const auto loss = [&](const Floats& weights, const Floats& in) {
    const Floats out = layer.block(weights, in, r).out;
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
  for (size_t i = 0; i < x.size(); i += 5)
    EXPECT_NEAR(run.x_grad[i], slope(x, i, [&](const Floats& at) { return loss(w, at); }), 6e-3)
        << "x " << i;
  for (const Parameter& p : layer_parameters(small_model(), 1))
    for (int64_t k = 0; k < p.size; k += p.size / 7) {
      const auto i = static_cast<size_t>(p.offset + k);
      EXPECT_NEAR(run.gradients[i], slope(w, i, [&](const Floats& at) { return loss(at, x); }),
                  6e-3)
          << p.name << " " << k;
    }
}

TEST(Head, CpuAgreesWithTheReferenceTensorByTensor) {
  for (auto numerics : {planner::Numerics::kExact, planner::Numerics::kFp32}) {
    const auto cpu = cpu_backend(), reference = make_reference_backend();
    OneLayer a(*cpu, numerics), b(*reference, numerics);
    const Floats w = layer_values(3), x = random_floats(a.activations(), 1);
    const LayerRun got = a.head(w, x, kTargets), wanted = b.head(w, x, kTargets);
    EXPECT_NEAR(got.loss, wanted.loss, 1e-6);
    expect_close(got.x_grad, wanted.x_grad, 1e-6, "x_grad");
    expect_gradients_close(got.gradients, wanted.gradients, 3, 1e-6);
  }
}

TEST(Head, AgreesWithFiniteDifferences) {
  const auto backend = cpu_backend();
  OneLayer layer(*backend, planner::Numerics::kFp32);
  const Floats w = layer_values(3), x = random_floats(layer.activations(), 1);
  const LayerRun run = layer.head(w, x, kTargets);
  constexpr float kStep = 1.0f / 128;
  const auto slope = [&](Floats at, size_t i, bool of_x) {
    const float here = at[i];
    at[i] = here + kStep;
    const double up = (of_x ? layer.head(w, at, kTargets) : layer.head(at, x, kTargets)).loss;
    at[i] = here - kStep;
    return (up - (of_x ? layer.head(w, at, kTargets) : layer.head(at, x, kTargets)).loss) /
           (2 * kStep);
  };
  for (size_t i = 0; i < x.size(); i += 3)
    EXPECT_NEAR(run.x_grad[i], slope(x, i, true), 1e-4) << "x " << i;
  for (size_t i = 0; i < w.size(); i += 11)
    EXPECT_NEAR(run.gradients[i], slope(w, i, false), 1e-4) << "weight " << i;
}

}  // namespace
}  // namespace flextrain::trainer
