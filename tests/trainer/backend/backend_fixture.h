// SPDX-License-Identifier: MIT
// One suite, every backend: values in and out as host vectors.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/trainer/backend/reference_backend.h"
#include "trainer/backend/backend.h"

namespace flextrain::trainer {

using Floats = std::vector<float>;

struct BackendKind {
  const char* name;
  std::function<std::unique_ptr<Backend>()> make;
};
inline void PrintTo(const BackendKind& kind, std::ostream* out) { *out << kind.name; }
inline std::unique_ptr<Backend> cpu_backend() { return std::move(make_cpu_backend()).value(); }
inline auto all_backends() {
  return testing::Values(BackendKind{"Cpu", cpu_backend},
                         BackendKind{"Reference", make_reference_backend});
}
inline std::string backend_name(const testing::TestParamInfo<BackendKind>& info) {
  return info.param.name;
}

// Uniform in [-1, 1), the same for the same seed.
inline Floats random_floats(int64_t size, uint64_t seed) {
  Floats values(static_cast<size_t>(size));
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (float& v : values) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    v = static_cast<float>(static_cast<double>(state >> 11) / (1ull << 52) - 1.0);
  }
  return values;
}

inline Tensor put(Backend& b, const Floats& values) {
  const Tensor t = b.allocate(DType::kFloat32, static_cast<int64_t>(values.size())).value();
  b.upload(t, std::span<const float>(values));
  return t;
}
inline Tensor put(Backend& b, const std::vector<int32_t>& values) {
  const Tensor t = b.allocate(DType::kInt32, static_cast<int64_t>(values.size())).value();
  b.upload(t, std::span<const int32_t>(values));
  return t;
}
inline Tensor space(Backend& b, int64_t size, DType dtype = DType::kFloat32) {
  return b.allocate(dtype, size).value();
}
inline Floats get(Backend& b, Tensor t) {
  Floats values(static_cast<size_t>(t.size()));
  b.download(t, std::span<float>(values));
  EXPECT_TRUE(b.synchronize().ok()) << b.synchronize().to_string();
  return values;
}
inline std::vector<double> get_doubles(Backend& b, Tensor t) {
  std::vector<double> values(static_cast<size_t>(t.size()));
  b.download(t, std::span<double>(values));
  EXPECT_TRUE(b.synchronize().ok());
  return values;
}
inline std::vector<int64_t> get_ints(Backend& b, Tensor t) {
  std::vector<int64_t> values(static_cast<size_t>(t.size()));
  b.download(t, std::span<int64_t>(values));
  EXPECT_TRUE(b.synchronize().ok());
  return values;
}

// |a - b| ≤ threshold · max(1, largest |b|), element by element.
inline void expect_close(const Floats& a, const Floats& b, double threshold,
                         const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 1, worst = 0;
  size_t where = 0;
  for (float v : b) largest = std::max(largest, std::fabs(double{v}));
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double{a[i]} - b[i]);
    if (!(difference <= worst)) worst = difference, where = i;
  }
  EXPECT_LE(worst, threshold * largest)
      << what << "[" << where << "]: " << a[where] << " against " << b[where];
}

}  // namespace flextrain::trainer
