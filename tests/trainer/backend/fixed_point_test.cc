// SPDX-License-Identifier: MIT
// Fixed-point accumulation on every backend: rounding, order, limits; norms of what it sums.
#include <cmath>
#include <limits>

#include "tests/trainer/backend/backend_fixture.h"

namespace flextrain::trainer {
namespace {

class FixedPoint : public testing::TestWithParam<BackendKind> {
 protected:
  // Folds `values` into a fresh accumulator; the status in `status_`.
  std::vector<int64_t> fold(const Floats& values, const FoldParams& params) {
    const Tensor sum = space(b_, static_cast<int64_t>(values.size()), DType::kInt64),
                 status = space(b_, 1, DType::kInt64);
    b_.fold(put(b_, values), sum, params, true, status);
    status_ = get_ints(b_, status)[0];
    return get_ints(b_, sum);
  }
  std::unique_ptr<Backend> backend_ = GetParam().make();
  Backend& b_ = *backend_;
  int64_t status_ = 0;
};

TEST_P(FixedPoint, RoundsToNearestEven) {
  const Floats values = {0.0f,  -0.0f,      0.5f,       1.5f, 2.5f,   -0.5f,  -1.5f, 0.49f, 0.51f,
                         -2.5f, 8388607.5f, 8388608.0f, 1e9f, -1e15f, 1e-30f, 3.0f,  -7.25f};
  EXPECT_EQ(fold(values, {0, 60}),
            (std::vector<int64_t>{0, 0, 0, 2, 2, 0, -2, 0, 1, -2, 8388608, 8388608, 1000000000,
                                  static_cast<int64_t>(-1e15f), 0, 3, -7}));
  EXPECT_EQ(status_, 0);
}

TEST_P(FixedPoint, AgreesWithExactArithmeticForRandomBitsOfAllSizes) {
  const Floats mantissas = random_floats(4096, 7);
  Floats values;
  for (size_t i = 0; i < mantissas.size(); ++i)
    values.push_back(std::ldexp(mantissas[i], static_cast<int>(i % 60) - 44));
  const auto got = fold(values, {44, 62});
  for (size_t i = 0; i < values.size(); ++i) {
    const long double exact = std::ldexp(static_cast<long double>(values[i]), 44);
    EXPECT_EQ(got[i], static_cast<int64_t>(std::nearbyint(exact))) << values[i];
  }
}

TEST_P(FixedPoint, SumDoesNotDependOnTheOrder) {
  const int64_t size = 301;
  std::vector<Tensor> parts;
  for (uint64_t i = 0; i < 8; ++i) parts.push_back(put(b_, random_floats(size, 11 + i)));
  const auto sum_of = [&](std::vector<int> order) {
    const Tensor sum = space(b_, size, DType::kInt64), status = space(b_, 1, DType::kInt64);
    for (size_t i = 0; i < order.size(); ++i)
      b_.fold(parts[static_cast<size_t>(order[i])], sum, {44, 58}, i == 0, status);
    return get_ints(b_, sum);
  };
  EXPECT_EQ(sum_of({0, 1, 2, 3, 4, 5, 6, 7}), sum_of({5, 2, 7, 0, 3, 6, 1, 4}));
}

TEST_P(FixedPoint, SaysWhatDoesNotFit) {
  Floats values(37, 0.25f);
  fold(values, {44, 43});
  EXPECT_EQ(status_, 0);  // 2^42 < 2^43
  values[36] = 0.5f;      // exactly the limit, in the tail of the vectors
  EXPECT_EQ(fold(values, {44, 43})[36], 0);
  EXPECT_EQ(status_, kFoldSaturated);
  values[36] = -3e38f;  // overflows a float when scaled, but is a number
  fold(values, {44, 43});
  EXPECT_EQ(status_, kFoldSaturated);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    for (size_t where : {size_t{0}, size_t{36}}) {
      Floats broken(37, 1.0f);
      broken[where] = bad;
      fold(broken, {44, 58});
      EXPECT_EQ(status_, kFoldNotFinite);
    }
  }
}

TEST_P(FixedPoint, StatusKeepsTheWorst) {
  const Tensor sum = space(b_, 1, DType::kInt64), status = space(b_, 1, DType::kInt64);
  b_.fold(put(b_, Floats{std::nanf("")}), sum, {44, 58}, true, status);
  b_.fold(put(b_, Floats{1.0f}), sum, {44, 58}, false, status);
  b_.fold(put(b_, Floats{1e9f}), sum, {44, 58}, false, status);
  EXPECT_EQ(get_ints(b_, status)[0], kFoldNotFinite);
  EXPECT_EQ(get_ints(b_, sum)[0], int64_t{1} << 44);
}

TEST_P(FixedPoint, SumOfSquares) {
  const Floats values = random_floats(1234, 5);
  long double wanted = 0;
  for (float v : values) wanted += static_cast<long double>(v) * v;
  const Tensor sum = space(b_, 1, DType::kFloat64), t = put(b_, values);
  b_.sum_of_squares(t, 0, sum);
  EXPECT_NEAR(get_doubles(b_, sum)[0], static_cast<double>(wanted), 1e-11);
  const Tensor folded = space(b_, 1234, DType::kInt64), status = space(b_, 1, DType::kInt64);
  b_.fold(t, folded, {44, 58}, true, status);
  b_.sum_of_squares(folded, 44, sum);
  EXPECT_NEAR(get_doubles(b_, sum)[0], static_cast<double>(wanted), 1e-10);
}

TEST_P(FixedPoint, AdamWTakesFixedPointLikeFloat) {
  const Floats gradient = random_floats(77, 5);
  const Tensor g = put(b_, gradient), folded = space(b_, 77, DType::kInt64),
               status = space(b_, 1, DType::kInt64);
  b_.fold(g, folded, {44, 58}, true, status);
  AdamParams params{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 10.0f, 20.0f, 0.5};
  const auto run = [&](Tensor grad, double scale) {
    const Tensor w = put(b_, random_floats(77, 6)), m = space(b_, 77), v = space(b_, 77);
    params.grad_scale = scale;
    b_.adamw(w, m, v, grad, params);
    return get(b_, w);
  };
  expect_close(run(folded, std::ldexp(0.5, -44)), run(g, 0.5), 1e-6, "weight");
}

INSTANTIATE_TEST_SUITE_P(Backends, FixedPoint, all_backends(), backend_name);

}  // namespace
}  // namespace flextrain::trainer
