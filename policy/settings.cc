// SPDX-License-Identifier: MIT
#include "policy/settings.h"

namespace flextrain::policy {
namespace {

using Key = ConfigKeySpec<Parameters>;

Key quiet_hours_key() {
  return {"QuietHours",
          [](Parameters& parameters, const std::string& value) -> Status {
            ASSIGN_OR_RETURN(parameters.quiet_hours, QuietHours::parse(value));
            return {};
          },
          [](const Parameters& parameters) { return parameters.quiet_hours.text(); }};
}

template <class Where>
Key integer(std::string name, int64_t low, int64_t high, Where where) {
  return integer_key<Parameters>(std::move(name), low, high, where);
}
template <class Where>
Key number(std::string name, double low, double high, Where where) {
  return number_key<Parameters>(std::move(name), low, high, where);
}
template <class Where>
Key yes_no(std::string name, Where where) {
  return yes_no_key<Parameters>(std::move(name), where);
}
template <class Parse, class Name, class Where>
Key named(std::string name, Parse parse, Name name_of, Where where) {
  return named_key<Parameters>(std::move(name), parse, name_of, where);
}

constexpr int64_t kDay = 86400;

}  // namespace

#define FIELD(path) \
  [](Parameters & parameters) -> auto& { return parameters.path; }
const std::vector<Key>& settings() {
  // Leaked on purpose: slurmctld may still run our threads while statics are destroyed.
  static const auto* keys = new std::vector<Key>{
      named("Gate", parse_gate, gate_name, FIELD(gate)),
      number("GateProbability", 0, 1, FIELD(gate_probability)),
      integer("ArrivalWindowSeconds", 60, 30 * kDay, FIELD(arrival_window_seconds)),
      integer("ArrivalMinGPUs", 1, 1000000, FIELD(arrival_min_gpus)),
      named("Forecast", parse_forecast, forecast_name, FIELD(forecast)),
      named("Victims", parse_victim_rule, victim_rule_name, FIELD(victims)),
      number("MaxGrowth", 1, 1000, FIELD(max_growth)),
      yes_no("RequireEmptyQueue", FIELD(require_empty_queue)),
      integer("SpareEndingSeconds", 0, kDay, FIELD(spare_ending_seconds)),
      integer("UserMaxExpandedGPUs", 0, 1000000, FIELD(user_max_expanded)),
      integer("AccountMaxExpandedGPUs", 0, 1000000, FIELD(account_max_expanded)),
      integer("MaxScalingsPerHour", 0, 1000, FIELD(max_scalings_per_hour)),
      number("IdleReserve", 0, 1, FIELD(idle_reserve)),
      quiet_hours_key(),
      integer("QueueDepth", 1, 100000, FIELD(queue_depth)),
      yes_no("RemainingTimeGuard", FIELD(remaining_time_guard)),
      number("DefaultOverheadSeconds", 0, 86400, FIELD(default_overhead_seconds)),
      integer("CooldownSeconds", 0, kDay, FIELD(cooldown_seconds)),
      integer("RetryAfterFailureSeconds", 0, kDay, FIELD(retry_after_failure_seconds)),
  };
  return *keys;
}
#undef FIELD

}  // namespace flextrain::policy
