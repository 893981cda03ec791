// SPDX-License-Identifier: MIT
#include "policy/gate.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace flextrain::policy {

std::string_view gate_name(Gate gate) {
  switch (gate) {
    case Gate::kNone:
      return "none";
    case Gate::kPrinted:
      return "printed";
    case Gate::kBreakEven:
      return "break-even";
    case Gate::kBreakEvenTakeBack:
      return "break-even-take-back";
    case Gate::kNetBenefit:
      return "net-benefit";
  }
  return "unknown";
}

Result<Gate> parse_gate(std::string_view text) {
  for (const Gate gate :
       {Gate::kNone, Gate::kPrinted, Gate::kBreakEven, Gate::kBreakEvenTakeBack, Gate::kNetBenefit})
    if (to_lower(trim(text)) == gate_name(gate)) return gate;
  return invalid_argument(
      "'{}' is no gate; one of none, printed, break-even, break-even-take-back, net-benefit", text);
}

double benefit_probability(Gate gate, double rate_per_second, double overhead_seconds,
                           double speedup) {
  const double events = rate_per_second * overhead_seconds;
  switch (gate) {
    case Gate::kNone:
    case Gate::kNetBenefit:
      return 1.0;
    case Gate::kPrinted:
      return std::exp(-events / speedup);
    case Gate::kBreakEven:
      return std::exp(-events * speedup / (speedup - 1));
    case Gate::kBreakEvenTakeBack:
      return std::exp(-events * (speedup + 1) / (speedup - 1));
  }
  return 0.0;
}

double net_benefit(double rate, double overhead, double overhead_back, double remaining,
                   double speedup) {
  const double full = overhead + remaining / speedup;  // F
  if (rate <= 0) return remaining - full;
  const double stays = std::exp(-rate * full);       // P(T > F)
  const double leaves = -std::expm1(-rate * full);   // P(T <= F)
  const double time = leaves / rate - full * stays;  // E[T; T <= F]
  const double span = full - overhead;
  const double useful =  // E[max(0, T − O); T <= F]
      std::exp(-rate * overhead) *
      (-std::expm1(-rate * span) / rate - span * std::exp(-rate * span));
  return stays * (remaining - full) + speedup * useful - time - overhead_back * leaves;
}

double net_benefit_of_stay(double stay, double overhead, double overhead_back, double remaining,
                           double speedup) {
  const double full = overhead + remaining / speedup;
  if (stay > full) return remaining - full;
  return speedup * std::max(0.0, stay - overhead) - stay - overhead_back;
}

std::string gate_formula(Gate gate) {
  switch (gate) {
    case Gate::kNone:
      return "";
    case Gate::kPrinted:
      return "P = exp(-lambda*O/S) > P_th";
    case Gate::kBreakEven:
      return "P = exp(-lambda*O*S/(S-1)) > P_th";
    case Gate::kBreakEvenTakeBack:
      return "P = exp(-lambda*O*(S+1)/(S-1)) > P_th";
    case Gate::kNetBenefit:
      return "E > 0";
  }
  return "";
}

}  // namespace flextrain::policy
