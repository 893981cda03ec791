// SPDX-License-Identifier: MIT
// policy: WHEN, WHO and HOW MANY GPUs. Pure: a Snapshot and Parameters in, Decisions out; time is
// an argument, there is no randomness, and neither Slurm nor I/O is known here, so that a recorded
// snapshot gives the same decisions again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "policy/quiet_hours.h"
#include "policy/shared_list.h"

namespace flextrain::policy {

// What a growth must pass; formulas in docs/policy.md. λ arrivals per second, O overhead,
// S speed-up.
enum class Gate {
  kNone,               // always
  kPrinted,            // exp(−λ·O/S) > P_th (FlexTrain as printed)
  kBreakEven,          // exp(−λ·O·S/(S−1)) > P_th
  kBreakEvenTakeBack,  // exp(−λ·O·(S+1)/(S−1)) > P_th
  kNetBenefit,         // E[seconds saved] > 0, the GPUs staying exponentially long
};
std::string_view gate_name(Gate gate);  // "none", "printed", "break-even", …
Result<Gate> parse_gate(std::string_view text);

// Where λ comes from (policy/forecast.h).
enum class ForecastKind {
  kTrailing,  // arrivals of at least arrival_min_gpus in the trailing window
  kThinned,   // all arrivals in the window × P(larger than what stays idle after the growth)
  kSeasonal,  // the rate at this time of day shrunk to the last hour, thinned
  kIdle,      // how long idle GPUs stayed idle at this time of day and of late
};
std::string_view forecast_name(ForecastKind kind);
Result<ForecastKind> parse_forecast(std::string_view text);

// Who gives GPUs back first.
enum class VictimRule {
  kMostExpanded,        // the job that gained most GPUs (FlexTrain as printed)
  kSmallestSufficient,  // the smallest expansion that covers the need alone, else the largest
};
std::string_view victim_rule_name(VictimRule rule);  // "most-expanded", "smallest-sufficient"
Result<VictimRule> parse_victim_rule(std::string_view text);

struct Parameters {
  Gate gate = Gate::kBreakEven;
  double gate_probability = 0.6;  // P_th
  ForecastKind forecast = ForecastKind::kThinned;
  VictimRule victims = VictimRule::kSmallestSufficient;
  int64_t arrival_window_seconds = 8 * 3600;  // over which λ is taken
  int arrival_min_gpus = 1;                   // kTrailing: jobs asking fewer do not count for λ
  double max_growth = 4.0;                    // times the initial allocation
  bool require_empty_queue = true;            // grow only when no GPU job waits
  bool remaining_time_guard = true;  // refuse unless R − R/S > O (the time saved exceeds the pause)
  double default_overhead_seconds = 60;      // before the first measurement
  int64_t cooldown_seconds = 0;              // after a switch
  int64_t retry_after_failure_seconds = 60;  // doubled per further failure in a row, up to 64x
  // A victim that ends within so many seconds, or is saving, is asked after the others; 0 = alike.
  int64_t spare_ending_seconds = 120;
  // 0 = no bound, for these three.
  int user_max_expanded = 0, account_max_expanded = 0;  // GPUs beyond the bases, of all their jobs
  int max_scalings_per_hour = 0;                        // of a job
  double idle_reserve = 0;  // share of what no base and no rigid job holds that stays idle
  QuietHours quiet_hours;   // local time; nobody grows
  int queue_depth = 500;    // so many waiting jobs, in Slurm's order, may take GPUs back
};

// Named sets of parameters: "recommended" (the defaults above) and "flextrain-paper" (FlexTrain as
// published: printed gate, trailing rate of jobs of at least 32 GPUs, no guard, the job that gained
// most GPUs gives first, nobody spared).
Result<Parameters> parse_preset(std::string_view text);

struct TableEntry {
  int gpus = 0;
  double tokens_per_second = 0;
};

struct NodeOffer {  // idle GPUs of one node that fit this job's companion request now
  std::string node;
  int gpus = 0;
};

struct CompanionView {
  uint32_t job_id = 0;
  std::string node;
  int gpus = 0;
  // Ordered back already (a shrink is under way): its GPUs count as becoming idle, and no further
  // reclaim is made for what they cover. Not part of held_gpus.
  bool leaving = false;
};

struct ElasticJobView {
  uint32_t job_id = 0;
  std::string user, account;
  int64_t start_time = 0;
  bool steady = false;  // running, agent registered, no switch under way
  std::string not_steady_reason;
  int base_gpus = 0;              // guaranteed minimum
  int held_gpus = 0;              // base + companions
  int max_gpus = 0;               // the user's --elastic-max
  std::vector<TableEntry> table;  // kept entries, ascending GPUs; empty = not known yet
  // At the present speed: what "progress" or "limit" say; where neither is known, the guard takes
  // the job to run as long again as it has run.
  std::optional<double> remaining_seconds;
  std::string remaining_source;
  bool saving = false;   // a checkpoint, now
  int pending_gpus = 0;  // companions ordered that it does not use yet
  int scalings_last_hour = 0;
  double grow_overhead_seconds = 0, shrink_overhead_seconds = 0;  // measured; 0 = not yet
  int64_t last_switch_time = 0, last_failure_time = 0;
  int failures = 0;  // in a row
  // Set when somebody or something outside the policy forbids growth ("paused", "left-alone", …):
  // the rule to record and one sentence. Reclaim is not concerned.
  std::string hold_rule, hold_reason;
  SharedList<NodeOffer> offers;
  std::vector<std::string> own_nodes;  // where no companion may go, whatever is offered there
  std::vector<CompanionView> companions;
};

struct WaitingJob {  // a pending job that only GPUs keep from starting
  uint32_t job_id = 0;
  int64_t submit_time = 0;
  int nodes = 1, gpus = 0, gpus_per_node = 0;  // gpus_per_node 0 = any spread
  // Idle GPUs per node that this job could use, expanded ones not counted.
  SharedList<NodeOffer> offers;
  // Companions on nodes it could use.
  SharedList<std::string> usable_nodes;
};

struct Arrival {
  double time = 0;  // unix seconds
  int gpus = 0;
};

// λ as a function of the margin, the GPUs that stay idle after a growth: arrivals per second that
// would take expanded GPUs back. policy/forecast.h makes it.
struct Forecast {
  // per_second[i] is for margins of 8i … 8i+7; the last one holds for every larger margin too.
  std::vector<double> per_second;
  int arrivals = 0;    // counted
  double seconds = 0;  // over which
  double rate(int margin) const;
};

struct Snapshot {
  int64_t now = 0;
  int64_t local_offset_seconds = 0;  // local time − UTC
  std::vector<ElasticJobView> elastic;
  std::vector<WaitingJob> waiting;  // in Slurm's order; the first queue_depth at least
  int more_waiting = 0;             // those behind them
  int other_waiting_gpu_jobs =
      0;  // pending GPU jobs that GPUs alone would not start (held, limits …)
  Forecast forecast;
  int idle_gpus = 0, total_gpus = 0;
};

enum class DecisionKind { kGrow, kRefuseGrow, kShrink, kAbortReclaim };
std::string_view decision_kind_name(DecisionKind kind);  // "grow", "refuse", "shrink", "abort"

struct Decision {
  DecisionKind kind = DecisionKind::kRefuseGrow;
  uint32_t job_id = 0;   // the elastic job; 0 for kAbortReclaim
  uint32_t for_job = 0;  // shrink/abort: the waiting job
  int from_gpus = 0, to_gpus = 0;
  std::vector<NodeOffer> take;           // grow: companions to submit, at most one per node
  std::vector<uint32_t> give_back;       // shrink: companion job ids to leave
  std::string rule;                      // short, stable: "gate", "queue-not-empty", "guard", …
  std::string reason;                    // one sentence for people, with the numbers in it
  std::string formula;                   // with the symbols of `inputs`
  std::map<std::string, double> inputs;  // symbol → value, everything the formula used
};

// Shrinks come before growths. For each elastic job at most one decision. Deterministic.
std::vector<Decision> decide(const Snapshot& snapshot, const Parameters& parameters);

}  // namespace flextrain::policy
