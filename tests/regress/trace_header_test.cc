// SPDX-License-Identifier: MIT
// What went wrong: a trace whose first line named a column twice was read with fewer fields per
// line than the last column's number, beyond the end of the line's fields: `sflex simulate`
// crashed. The fuzzer of traces found it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/read_trace.h"

namespace flextrain::simulator {
namespace {

TEST(TraceHeader, AColumnThatIsThereTwiceIsRefused) {
  const auto read = read_trace(
      "JobID|Submit|Start|Submit|Start|Submit|Start|End|TimelimitRaw|AllocTRES\n"
      "7|2026-11-02T08:00:00|2026-11-02T08:10:00|2026-11-02T08:20:00|9|gres/gpu=1\n",
      "t", {});
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.status().message(), testing::HasSubstr("t:1: the column Submit is there twice"));
}

}  // namespace
}  // namespace flextrain::simulator
