// SPDX-License-Identifier: MIT
// The arrival rate and the probability that a growth pays. Pure. Private to policy/.
#pragma once

#include <string>

#include "policy/policy.h"

namespace flextrain::policy {

struct ArrivalRate {
  double per_second = 0;  // λ
  int arrivals = 0;       // counted
  double seconds = 0;     // over which
};
// Arrivals of at least arrival_min_gpus in (now − window, now], over the window, or at the start
// over the time observed, but at least an hour.
ArrivalRate arrival_rate(const Snapshot& snapshot, const Parameters& parameters);

// P(benefit); 1 for kNone. `speedup` > 1.
double benefit_probability(Gate gate, double rate_per_second, double overhead_seconds,
                           double speedup);
// "P = exp(-lambda*O/S) > P_th" and so on; "" for kNone.
std::string gate_formula(Gate gate);

}  // namespace flextrain::policy
