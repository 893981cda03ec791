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
  }
  return "unknown";
}

Result<Gate> parse_gate(std::string_view text) {
  for (const Gate gate : {Gate::kNone, Gate::kPrinted, Gate::kBreakEven, Gate::kBreakEvenTakeBack})
    if (to_lower(trim(text)) == gate_name(gate)) return gate;
  return invalid_argument("'{}' is no gate; one of none, printed, break-even, break-even-take-back",
                          text);
}

ArrivalRate arrival_rate(const Snapshot& snapshot, const Parameters& parameters) {
  constexpr int64_t kShortest = 3600;
  ArrivalRate rate;
  const int64_t window = std::max<int64_t>(parameters.arrival_window_seconds, 1);
  for (const Arrival& arrival : snapshot.arrivals)
    if (arrival.gpus >= parameters.arrival_min_gpus && arrival.time > snapshot.now - window &&
        arrival.time <= snapshot.now)
      ++rate.arrivals;
  const int64_t observed = std::max(kShortest, snapshot.now - snapshot.observed_since);
  rate.seconds = static_cast<double>(std::min(window, observed));
  rate.per_second = rate.arrivals / rate.seconds;
  return rate;
}

double benefit_probability(Gate gate, double rate_per_second, double overhead_seconds,
                           double speedup) {
  const double events = rate_per_second * overhead_seconds;
  switch (gate) {
    case Gate::kNone:
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
  }
  return "";
}

}  // namespace flextrain::policy
