// SPDX-License-Identifier: MIT
// Every operation's gradient against central differences of its own forward, on every backend.
#include <cmath>

#include "tests/trainer/backend/backend_fixture.h"

namespace flextrain::trainer {
namespace {

using Forward = std::function<Floats(Backend&, const Floats&)>;

// d(weights · forward(x))/dx by central differences. float outputs limit the precision: the step is
// large and the thresholds below follow from it.
Floats numeric_gradient(Backend& b, const Forward& forward, const Floats& x,
                        const Floats& weights) {
  constexpr float kStep = 1.0f / 128;
  const auto loss = [&](const Floats& at) {
    const Floats out = forward(b, at);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += double{out[i]} * weights[i];
    return sum;
  };
  Floats gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    Floats up = x, down = x;
    up[i] += kStep;
    down[i] -= kStep;
    gradient[i] = static_cast<float>((loss(up) - loss(down)) / (2 * kStep));
  }
  return gradient;
}

class FiniteDifferences : public testing::TestWithParam<BackendKind> {
 protected:
  std::unique_ptr<Backend> backend_ = GetParam().make();
  Backend& b_ = *backend_;
};

TEST_P(FiniteDifferences, Linear) {
  const LinearShape s{3, 5, 4};
  const Floats x = random_floats(15, 1), w = random_floats(20, 2), r = random_floats(12, 3);
  const auto forward_x = [&](Backend& b, const Floats& at) {
    const Tensor y = space(b, 12);
    b.linear_forward(put(b, at), put(b, w), y, s);
    return get(b, y);
  };
  const auto forward_w = [&](Backend& b, const Floats& at) {
    const Tensor y = space(b, 12);
    b.linear_forward(put(b, x), put(b, at), y, s);
    return get(b, y);
  };
  const Tensor x_grad = space(b_, 15), w_grad = space(b_, 20);
  b_.linear_backward_input(put(b_, r), put(b_, w), x_grad, s);
  b_.linear_backward_weight(put(b_, r), put(b_, x), w_grad, s, false);
  expect_close(get(b_, x_grad), numeric_gradient(b_, forward_x, x, r), 1e-4, "x");
  expect_close(get(b_, w_grad), numeric_gradient(b_, forward_w, w, r), 1e-4, "weight");
}

TEST_P(FiniteDifferences, RmsNorm) {
  constexpr int64_t kRows = 3, kWidth = 19;
  const Floats x = random_floats(kRows * kWidth, 1), w = random_floats(kWidth, 2),
               r = random_floats(kRows * kWidth, 3);
  const auto forward = [&](Backend& b, const Floats& x_at, const Floats& w_at) {
    const Tensor y = space(b, kRows * kWidth), inverse = space(b, kRows);
    b.rms_norm_forward(put(b, x_at), put(b, w_at), y, inverse, kWidth, 1e-5f);
    return get(b, y);
  };
  const Tensor inverse = space(b_, kRows), y = space(b_, kRows * kWidth),
               x_grad = space(b_, kRows * kWidth), w_grad = space(b_, kWidth);
  const Tensor xt = put(b_, x), wt = put(b_, w);
  b_.rms_norm_forward(xt, wt, y, inverse, kWidth, 1e-5f);
  b_.rms_norm_backward(xt, wt, inverse, put(b_, r), x_grad, w_grad, kWidth, false);
  expect_close(get(b_, x_grad),
               numeric_gradient(
                   b_, [&](Backend& b, const Floats& at) { return forward(b, at, w); }, x, r),
               1e-3, "x");
  expect_close(get(b_, w_grad),
               numeric_gradient(
                   b_, [&](Backend& b, const Floats& at) { return forward(b, x, at); }, w, r),
               1e-4, "weight");
}

TEST_P(FiniteDifferences, Rope) {
  const AttentionShape s{2, 3, 2, 1, 4};
  const int64_t size = s.rows() * s.qkv_width();
  const Floats x = random_floats(size, 1), r = random_floats(size, 2);
  Floats cosine, sine;
  for (int64_t i = 0; i < s.length * s.head_dim / 2; ++i) {
    cosine.push_back(std::cos(0.3f * static_cast<float>(i)));
    sine.push_back(std::sin(0.3f * static_cast<float>(i)));
  }
  const auto forward = [&](Backend& b, const Floats& at) {
    const Tensor t = put(b, at);
    b.rope(t, put(b, cosine), put(b, sine), s, false);
    return get(b, t);
  };
  const Tensor grad = put(b_, r);
  b_.rope(grad, put(b_, cosine), put(b_, sine), s, true);
  expect_close(get(b_, grad), numeric_gradient(b_, forward, x, r), 1e-4, "qkv");
}

TEST_P(FiniteDifferences, Attention) {
  for (const AttentionShape& s : {AttentionShape{2, 5, 2, 2, 4}, AttentionShape{1, 6, 4, 2, 2}}) {
    const int64_t size = s.rows() * s.qkv_width(), out_size = s.rows() * s.out_width();
    const Floats x = random_floats(size, 1), r = random_floats(out_size, 2);
    const auto forward = [&](Backend& b, const Floats& at) {
      const Tensor out = space(b, out_size), sums = space(b, s.rows() * s.heads);
      b.attention_forward(put(b, at), out, sums, s);
      return get(b, out);
    };
    const Tensor qkv = put(b_, x), out = space(b_, out_size), grad = space(b_, size),
                 sums = space(b_, s.rows() * s.heads);
    b_.attention_forward(qkv, out, sums, s);
    b_.attention_backward(qkv, out, sums, put(b_, r), grad, s);
    expect_close(get(b_, grad), numeric_gradient(b_, forward, x, r), 3e-4, "qkv");
  }
}

TEST_P(FiniteDifferences, SwiGlu) {
  constexpr int64_t kRows = 2, kWidth = 17;
  const Floats x = random_floats(kRows * 2 * kWidth, 1), r = random_floats(kRows * kWidth, 2);
  const auto forward = [&](Backend& b, const Floats& at) {
    const Tensor out = space(b, kRows * kWidth);
    b.swiglu_forward(put(b, at), out, kWidth);
    return get(b, out);
  };
  const Tensor grad = space(b_, kRows * 2 * kWidth), again = space(b_, kRows * kWidth);
  b_.swiglu_backward(put(b_, x), put(b_, r), grad, again, kWidth);
  expect_close(get(b_, grad), numeric_gradient(b_, forward, x, r), 1e-4, "gate_up");
  expect_close(get(b_, again), forward(b_, x), 0, "activated");
}

TEST_P(FiniteDifferences, SoftmaxCrossEntropy) {
  constexpr int64_t kRows = 4, kVocab = 21;
  const std::vector<int32_t> targets = {3, 20, -1, 0};
  const Floats logits = random_floats(kRows * kVocab, 1), ones(kRows, 1.0f);
  const auto forward = [&](Backend& b, const Floats& at) {
    const Tensor loss = space(b, kRows, DType::kFloat64);
    b.softmax_cross_entropy(put(b, at), put(b, targets), loss, kVocab, 1.0f, false);
    Floats out;
    for (double v : get_doubles(b, loss)) out.push_back(static_cast<float>(v));
    return out;
  };
  const Tensor grad = put(b_, logits), loss = space(b_, kRows, DType::kFloat64);
  b_.softmax_cross_entropy(grad, put(b_, targets), loss, kVocab, 1.0f, true);
  expect_close(get(b_, grad), numeric_gradient(b_, forward, logits, ones), 1e-4, "logits");
}

TEST_P(FiniteDifferences, Embedding) {
  constexpr int64_t kVocab = 4, kWidth = 5;
  const std::vector<int32_t> tokens = {2, 0, 2, -1, 3};
  const Floats table = random_floats(kVocab * kWidth, 1), r = random_floats(5 * kWidth, 2);
  const auto forward = [&](Backend& b, const Floats& at) {
    const Tensor out = space(b, 5 * kWidth);
    b.embedding_forward(put(b, at), put(b, tokens), out, kWidth);
    return get(b, out);
  };
  const Floats numeric = numeric_gradient(b_, forward, table, r);
  const Tensor grad = space(b_, kVocab * kWidth);
  b_.embedding_backward(put(b_, tokens), put(b_, r), grad, kWidth);
  expect_close(get(b_, grad), numeric, 1e-4, "table");
  const Tensor folded = space(b_, kVocab * kWidth, DType::kInt64),
               status = space(b_, 1, DType::kInt64);
  b_.embedding_fold(put(b_, tokens), put(b_, r), folded, kWidth, {30, 50}, status);
  Floats unfolded;
  for (int64_t v : get_ints(b_, folded))
    unfolded.push_back(static_cast<float>(std::ldexp(static_cast<double>(v), -30)));
  expect_close(unfolded, numeric, 1e-4, "folded table");
}

TEST_P(FiniteDifferences, Residual) {
  const Floats a = random_floats(37, 1), c = random_floats(37, 2), r = random_floats(37, 3);
  const auto forward = [&](Backend& b, const Floats& at) {
    const Tensor out = space(b, 37);
    b.add(put(b, at), put(b, c), out);
    return get(b, out);
  };
  expect_close(r, numeric_gradient(b_, forward, a, r), 1e-4, "a");
}

INSTANTIATE_TEST_SUITE_P(Backends, FiniteDifferences, all_backends(), backend_name);

}  // namespace
}  // namespace flextrain::trainer
