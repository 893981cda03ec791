// SPDX-License-Identifier: MIT
// What a growth is worth: the gates' formulas. Pure. Private to policy/ and the tests.
#pragma once

#include <string>

#include "policy/policy.h"

namespace flextrain::policy {

// P(benefit); 1 for kNone and kNetBenefit. `speedup` > 1.
double benefit_probability(Gate gate, double rate_per_second, double overhead_seconds,
                           double speedup);

// Expected seconds that a growth saves when the GPUs stay T seconds, T exponential with
// `rate_per_second`; overhead O of the growth, O_d of the later shrink, R left at the present
// speed, F = O + R/S: R − F for T > F, else S·max(0, T − O) − T − O_d.
double net_benefit(double rate_per_second, double overhead, double overhead_back, double remaining,
                   double speedup);

// The same for GPUs that are known to stay `stay` seconds.
double net_benefit_of_stay(double stay, double overhead, double overhead_back, double remaining,
                           double speedup);

// "P = exp(-lambda*O/S) > P_th" and so on; "" for kNone.
std::string gate_formula(Gate gate);

}  // namespace flextrain::policy
