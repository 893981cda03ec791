// SPDX-License-Identifier: MIT
// The own kernels give the same bits on every instruction set: each is compiled for x86-64, -v3
// (AVX2, FMA) and -v4 (AVX-512), and all results are compared as bytes.
#include <cmath>

#include "tests/trainer/backend/backend_fixture.h"

// The three builds differ in their namespace alone (CMakeLists.txt).
#define kernels kernels_v1
#include "trainer/backend/cpu/kernels.h"
#undef kernels

#define FLEXTRAIN_KERNEL_TABLE(space)                                                         \
  Kernels {                                                                                   \
    space::add, space::rope, space::swiglu_forward, space::swiglu_backward,                   \
        space::rms_norm_forward, space::rms_norm_backward, space::softmax_cross_entropy,      \
        space::causal_softmax, space::causal_probabilities, space::causal_softmax_backward,   \
        space::fold, space::sum_of_squares, space::sum_of_squares, space::adamw, space::adamw \
  }

namespace flextrain::trainer {

struct Kernels {
  decltype(&kernels_v1::add) add;
  decltype(&kernels_v1::rope) rope;
  decltype(&kernels_v1::swiglu_forward) swiglu_forward;
  decltype(&kernels_v1::swiglu_backward) swiglu_backward;
  decltype(&kernels_v1::rms_norm_forward) rms_norm_forward;
  decltype(&kernels_v1::rms_norm_backward) rms_norm_backward;
  decltype(&kernels_v1::softmax_cross_entropy) softmax_cross_entropy;
  decltype(&kernels_v1::causal_softmax) causal_softmax;
  decltype(&kernels_v1::causal_probabilities) causal_probabilities;
  decltype(&kernels_v1::causal_softmax_backward) causal_softmax_backward;
  decltype(&kernels_v1::fold) fold;
  double (*sum_of_floats)(const float*, int64_t);
  double (*sum_of_ints)(const int64_t*, int64_t, int);
  void (*adamw_floats)(float*, float*, float*, const float*, int64_t, const AdamParams&);
  void (*adamw_ints)(float*, float*, float*, const int64_t*, int64_t, const AdamParams&);
};

#define FLEXTRAIN_DECLARE(space)                                                                   \
  namespace space {                                                                                \
  void add(const float*, const float*, float*, int64_t);                                           \
  void rope(float*, const float*, const float*, const AttentionShape&, bool);                      \
  void swiglu_forward(const float*, float*, int64_t, int64_t);                                     \
  void swiglu_backward(const float*, const float*, float*, float*, int64_t, int64_t);              \
  void rms_norm_forward(const float*, const float*, float*, float*, int64_t, int64_t, float);      \
  void rms_norm_backward(const float*, const float*, const float*, const float*, float*, float*,   \
                         int64_t, int64_t);                                                        \
  void softmax_cross_entropy(float*, const int32_t*, double*, int64_t, int64_t, float, bool);      \
  void causal_softmax(float*, float*, int64_t, int64_t, float);                                    \
  void causal_probabilities(float*, const float*, int64_t, int64_t, float);                        \
  void causal_softmax_backward(const float*, float*, const float*, const float*, int64_t, int64_t, \
                               int64_t, int64_t, float);                                           \
  int64_t fold(const float*, int64_t*, int64_t, const FoldParams&, bool);                          \
  double sum_of_squares(const float*, int64_t);                                                    \
  double sum_of_squares(const int64_t*, int64_t, int);                                             \
  void adamw(float*, float*, float*, const float*, int64_t, const AdamParams&);                    \
  void adamw(float*, float*, float*, const int64_t*, int64_t, const AdamParams&);                  \
  }
FLEXTRAIN_DECLARE(kernels_v3)
FLEXTRAIN_DECLARE(kernels_v4)

namespace {

template <typename T>
void append(std::string& bytes, const std::vector<T>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// All results of all kernels on awkward sizes, as bytes.
std::string results(const Kernels& k) {
  std::string bytes;
  for (int64_t width : {1, 15, 16, 67, 512}) {
    const int64_t rows = 5, size = rows * width;
    const auto n = static_cast<size_t>(size);
    const Floats a = random_floats(size, 1), b = random_floats(size, 2),
                 w = random_floats(width, 3);
    Floats wide = random_floats(2 * size, 4);
    for (float& v : wide) v *= 30;
    Floats out(n), grad(2 * n), inverse(rows), w_grad = w;
    k.add(a.data(), b.data(), out.data(), size);
    append(bytes, out);
    k.swiglu_forward(wide.data(), out.data(), rows, width);
    append(bytes, out);
    k.swiglu_backward(wide.data(), b.data(), grad.data(), out.data(), rows, width);
    append(bytes, grad);
    k.rms_norm_forward(a.data(), w.data(), out.data(), inverse.data(), rows, width, 1e-5f);
    append(bytes, out);
    append(bytes, inverse);
    k.rms_norm_backward(a.data(), w.data(), inverse.data(), b.data(), out.data(), w_grad.data(),
                        rows, width);
    append(bytes, out);
    append(bytes, w_grad);
    std::vector<double> loss(rows);
    const std::vector<int32_t> targets(rows, static_cast<int32_t>(width / 2));
    Floats logits(wide.begin(), wide.begin() + size);
    k.softmax_cross_entropy(logits.data(), targets.data(), loss.data(), rows, width, 0.3f, true);
    append(bytes, logits);
    append(bytes, loss);

    std::vector<int64_t> sum(n, 5);
    Floats spread = a;
    for (size_t i = 0; i < n; ++i) spread[i] = std::ldexp(a[i], static_cast<int>(i % 50) - 44);
    const std::vector<int64_t> status = {k.fold(spread.data(), sum.data(), size, {44, 50}, false)};
    append(bytes, status);
    append(bytes, sum);
    append(bytes, std::vector<double>{k.sum_of_floats(spread.data(), size),
                                      k.sum_of_ints(sum.data(), size, 44)});
    const AdamParams params{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3.0f, 5.0f, 1e-13};
    Floats weight = a, first = b, second(n, 0.01f);
    k.adamw_ints(weight.data(), first.data(), second.data(), sum.data(), size, params);
    k.adamw_floats(weight.data(), first.data(), second.data(), a.data(), size, params);
    append(bytes, weight);
    append(bytes, first);
    append(bytes, second);
  }
  for (int64_t length : {1, 7, 64}) {
    const int64_t stride = (length + 15) / 16 * 16;
    Floats scores = random_floats(length * stride, 5), again = scores, sums(64);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] *= 9, again[i] = scores[i];
    k.causal_softmax(scores.data(), sums.data(), length, stride, 0.7f);
    append(bytes, scores);
    append(bytes, sums);
    k.causal_probabilities(again.data(), sums.data(), length, stride, 0.7f);
    append(bytes, again);
    Floats grads = random_floats(length * stride, 6);
    const Floats out = random_floats(length * 10, 7), out_grad = random_floats(length * 10, 8);
    k.causal_softmax_backward(scores.data(), grads.data(), out.data(), out_grad.data(), 10, 6,
                              length, stride, 0.7f);
    append(bytes, grads);
  }
  const AttentionShape shape{1, 9, 3, 1, 14};
  Floats qkv = random_floats(shape.rows() * shape.qkv_width(), 9);
  const Floats c = random_floats(63, 10), s = random_floats(63, 11);
  k.rope(qkv.data(), c.data(), s.data(), shape, false);
  append(bytes, qkv);
  return bytes;
}

TEST(KernelBits, AreEqualOnEveryInstructionSet) {
  const std::string plain = results(FLEXTRAIN_KERNEL_TABLE(kernels_v1));
  EXPECT_EQ(results(FLEXTRAIN_KERNEL_TABLE(kernels_v1)), plain);
  int compared = 0;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    EXPECT_TRUE(results(FLEXTRAIN_KERNEL_TABLE(kernels_v3)) == plain) << "x86-64-v3";
    ++compared;
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    EXPECT_TRUE(results(FLEXTRAIN_KERNEL_TABLE(kernels_v4)) == plain) << "x86-64-v4";
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "this machine has neither AVX2 nor AVX-512";
}

}  // namespace
}  // namespace flextrain::trainer
