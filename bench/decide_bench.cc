// SPDX-License-Identifier: MIT
// What one decide() costs at the size of a large cluster. Usage: decide_bench [ROUNDS]
#include <fmt/core.h>

#include <cstdlib>

#include "tests/policy/large_cluster.h"

using namespace flextrain::policy;

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
  for (const LargeCluster& cluster : large_clusters()) {
    int decisions = 0;
    const double seconds = fastest_decide(cluster, rounds, decisions);
    fmt::print("{:<55} {:6.2f} ms, {} decisions\n", cluster.name, 1e3 * seconds, decisions);
  }
}
