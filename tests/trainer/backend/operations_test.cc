// SPDX-License-Identifier: MIT
// The tuned backend against the readable one, tensor by tensor, each with its threshold; sizes
// beside the vector width on purpose. And: the same bits every time.
#include <cmath>

#include "tests/trainer/backend/backend_fixture.h"

namespace flextrain::trainer {
namespace {

// An operation run on one backend: all its results, named.
struct Named {
  const char* name;
  double threshold;
  Floats values;
};
using Operation = std::function<std::vector<Named>(Backend&)>;

struct Case {
  std::string name;
  Operation run;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const LinearShape s :
       {LinearShape{7, 33, 19}, LinearShape{64, 96, 48}, LinearShape{256, 256, 768}})
    list.push_back({fmt::format("Linear{}x{}x{}", s.rows, s.in, s.out), [s](Backend& b) {
                      const Tensor x = put(b, random_floats(s.rows * s.in, 1)),
                                   w = put(b, random_floats(s.out * s.in, 2)),
                                   r = put(b, random_floats(s.rows * s.out, 3)),
                                   y = space(b, s.rows * s.out), x_grad = space(b, s.rows * s.in),
                                   w_grad = space(b, s.out * s.in);
                      b.linear_forward(x, w, y, s);
                      b.linear_backward_input(r, w, x_grad, s);
                      b.linear_backward_weight(r, x, w_grad, s, false);
                      const Floats once = get(b, w_grad);
                      b.linear_backward_weight(r, x, w_grad, s, true);
                      return std::vector<Named>{{"y", 3e-6, get(b, y)},
                                                {"x_grad", 3e-6, get(b, x_grad)},
                                                {"w_grad", 3e-6, once},
                                                {"w_grad twice", 3e-6, get(b, w_grad)}};
                    }});
  for (const int64_t width : {int64_t{1}, int64_t{16}, int64_t{37}, int64_t{256}})
    list.push_back({fmt::format("RmsNorm{}", width), [width](Backend& b) {
                      const int64_t rows = 9, size = rows * width;
                      const Tensor x = put(b, random_floats(size, 1)),
                                   w = put(b, random_floats(width, 2)),
                                   r = put(b, random_floats(size, 3)), y = space(b, size),
                                   x_grad = put(b, random_floats(size, 4)),
                                   w_grad = space(b, width), inverse = space(b, rows);
                      b.rms_norm_forward(x, w, y, inverse, width, 1e-5f);
                      b.rms_norm_backward(x, w, inverse, r, x_grad, w_grad, width, false);
                      const Floats once = get(b, w_grad);
                      b.rms_norm_backward(x, w, inverse, r, x_grad, w_grad, width, true);
                      return std::vector<Named>{{"y", 1e-6, get(b, y)},
                                                {"inverse_rms", 1e-6, get(b, inverse)},
                                                {"w_grad", 2e-6, once},
                                                {"w_grad twice", 2e-6, get(b, w_grad)},
                                                {"x_grad", 4e-6, get(b, x_grad)}};
                    }});
  for (const AttentionShape s : {AttentionShape{2, 17, 4, 2, 6}, AttentionShape{1, 1, 1, 1, 2},
                                 AttentionShape{1, 48, 6, 1, 16}, AttentionShape{2, 256, 2, 2, 64}})
    list.push_back(
        {fmt::format("Attention{}x{}x{}over{}", s.sequences, s.length, s.heads, s.kv_heads),
         [s](Backend& b) {
           const int64_t size = s.rows() * s.qkv_width(), out_size = s.rows() * s.out_width();
           const Tensor qkv = put(b, random_floats(size, 1)),
                        r = put(b, random_floats(out_size, 2)), out = space(b, out_size),
                        sums = space(b, s.rows() * s.heads), grad = space(b, size);
           b.attention_forward(qkv, out, sums, s);
           b.attention_backward(qkv, out, sums, r, grad, s);
           return std::vector<Named>{{"out", 2e-6, get(b, out)},
                                     {"log_sum", 1e-6, get(b, sums)},
                                     {"qkv_grad", 5e-6, get(b, grad)}};
         }});
  list.push_back(
      {"Rope", [](Backend& b) {
         const AttentionShape s{2, 5, 3, 3, 10};
         const Tensor qkv = put(b, random_floats(s.rows() * s.qkv_width(), 1));
         const Tensor c = put(b, random_floats(s.length * 5, 2)), d = put(b, random_floats(25, 3));
         b.rope(qkv, c, d, s, false);
         const Floats forward = get(b, qkv);
         b.rope(qkv, c, d, s, true);
         return std::vector<Named>{{"forward", 5e-7, forward}, {"inverse", 5e-7, get(b, qkv)}};
       }});
  for (const int64_t width : {int64_t{5}, int64_t{48}, int64_t{703}})
    list.push_back({fmt::format("SwiGlu{}", width), [width](Backend& b) {
                      const int64_t rows = 4;
                      Floats in = random_floats(rows * 2 * width, 1);
                      for (float& v : in) v *= 20;  // both tails of the sigmoid
                      const Tensor x = put(b, in), r = put(b, random_floats(rows * width, 2)),
                                   out = space(b, rows * width), grad = space(b, rows * 2 * width),
                                   again = space(b, rows * width);
                      b.swiglu_forward(x, out, width);
                      b.swiglu_backward(x, r, grad, again, width);
                      return std::vector<Named>{{"activated", 1e-6, get(b, out)},
                                                {"gate_up_grad", 1e-6, get(b, grad)},
                                                {"activated again", 1e-6, get(b, again)}};
                    }});
  for (const int64_t vocab : {int64_t{2}, int64_t{61}, int64_t{4096}})
    list.push_back({fmt::format("SoftmaxCrossEntropy{}", vocab), [vocab](Backend& b) {
                      Floats in = random_floats(5 * vocab, 1);
                      for (size_t i = 0; i < in.size(); ++i)
                        in[i] *= i < static_cast<size_t>(vocab) ? 300 : 5;
                      const Tensor logits = put(b, in), loss = space(b, 5, DType::kFloat64);
                      const Tensor targets = put(
                          b, std::vector<int32_t>{1, 0, static_cast<int32_t>(vocab) - 1, -1, 1});
                      b.softmax_cross_entropy(logits, targets, loss, vocab, 0.25f, false);
                      const Floats untouched = get(b, logits);
                      Floats first;
                      for (double v : get_doubles(b, loss)) first.push_back(static_cast<float>(v));
                      b.softmax_cross_entropy(logits, targets, loss, vocab, 0.25f, true);
                      Floats second;
                      for (double v : get_doubles(b, loss)) second.push_back(static_cast<float>(v));
                      return std::vector<Named>{{"logits", 0, untouched},
                                                {"loss", 1e-6, first},
                                                {"loss with gradient", 1e-6, second},
                                                {"gradient", 1e-6, get(b, logits)}};
                    }});
  list.push_back({"AdamW", [](Backend& b) {
                    const int64_t size = 1003;
                    const Tensor w = put(b, random_floats(size, 1)),
                                 m = put(b, random_floats(size, 2)),
                                 g = put(b, random_floats(size, 4));
                    Floats squares = random_floats(size, 3);
                    for (float& v : squares) v = std::fabs(v);
                    const Tensor v = put(b, squares);
                    b.adamw(w, m, v, g, {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.5f, 2.5f, 0.7});
                    return std::vector<Named>{{"weight", 1e-6, get(b, w)},
                                              {"m", 1e-6, get(b, m)},
                                              {"v", 1e-6, get(b, v)}};
                  }});
  return list;
}

class Operations : public testing::TestWithParam<Case> {};

TEST_P(Operations, CpuAgreesWithTheReference) {
  const auto cpu = cpu_backend(), reference = make_reference_backend();
  const auto got = GetParam().run(*cpu), wanted = GetParam().run(*reference);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    expect_close(got[i].values, wanted[i].values, got[i].threshold, got[i].name);
}

TEST_P(Operations, BitsRepeat) {
  const auto one = cpu_backend(), two = cpu_backend();
  const auto first = GetParam().run(*one), again = GetParam().run(*one),
             other = GetParam().run(*two);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].values, again[i].values) << first[i].name;
    EXPECT_EQ(first[i].values, other[i].values) << first[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Operations, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flextrain::trainer
