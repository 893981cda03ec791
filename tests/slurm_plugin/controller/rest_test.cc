// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/rest.h"

#include <gtest/gtest.h>

namespace flextrain::slurm_plugin {
namespace {

using namespace std::chrono_literals;

TEST(Rest, CheapRoundsAreFollowedByShortRests) {
  EXPECT_EQ(rest_after({2ms, 1ms}, true, 10s), 49ms);
  EXPECT_EQ(rest_after({2ms, 1ms}, false, 10s), 49ms) << "nothing to spare: as with GPUs lent";
  EXPECT_EQ(rest_after({100ms, 1ms}, true, 10s), 400ms);
  EXPECT_EQ(rest_after({9s, 1ms}, false, 10s), 10s) << "a slow answer does not silence it";
}

TEST(Rest, WithoutLentGpusALongQueueIsLookedAtSeldom) {
  EXPECT_EQ(rest_after({600ms, 300ms}, true, 10s), 10s);
  EXPECT_EQ(rest_after({200ms, 110ms}, false, 10s), 100s);
  EXPECT_EQ(rest_after({600ms, 300ms}, false, 10s), 240s);
  EXPECT_EQ(rest_after({40ms, 11ms}, false, 10s), 1s);
  EXPECT_EQ(rest_after({40ms, 11ms}, false, 3600s), 1s);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
