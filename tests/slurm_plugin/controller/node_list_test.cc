// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flextrain::slurm_plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HostList, Expands) {
  EXPECT_THAT(expand_host_list("").value(), IsEmpty());
  EXPECT_THAT(expand_host_list("n1").value(), ElementsAre("n1"));
  EXPECT_THAT(expand_host_list("n[1-3,07],gpu5").value(),
              ElementsAre("n1", "n2", "n3", "n07", "gpu5"));
  EXPECT_THAT(expand_host_list("r[1-2]n[08-10]").value(),
              ElementsAre("r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"));
}

TEST(HostList, RefusesWhatItCannotRead) {
  for (const char* text :
       {"n[1-3", "n1]", "n[3-1]", "n[a]", "n1,,n2", "n[1-99999999]", "[", "n[0-65535]x[0-65535]"}) {
    EXPECT_FALSE(expand_host_list(text).ok()) << text;
  }
}

TEST(Features, FollowsTheExpression) {
  const std::vector<std::string> node = {"a100", "ib"};
  for (const char* yes : {"", "a100", "a100&ib", "a100|v100", "v100|ib", "(v100|a100)&ib",
                          "[v100|a100]", "a100*4", "[a100*2&v100*2]|ib", "a100&(ib)"}) {
    EXPECT_TRUE(features_match(yes, node)) << yes;
  }
  for (const char* no :
       {"v100", "a100&v100", "(v100|h100)&ib", "a", "a100&", "(a100", "a100)", "&", "a100 ib"}) {
    EXPECT_FALSE(features_match(no, node)) << no;
  }
  EXPECT_FALSE(features_match(std::string(100000, '('), node));
}

}  // namespace
}  // namespace flextrain::slurm_plugin
