// SPDX-License-Identifier: MIT
#include "policy/growth.h"

#include <algorithm>
#include <cmath>

#include "policy/gate.h"
#include "policy/selection.h"
#include "policy/text.h"
#include "policy/throughput.h"

namespace flextrain::policy {
namespace {

// What one job may take now: its offers less what others took, without nodes that already hold a
// companion of it (one companion per node, so that each can be given back alone).
std::vector<NodeOffer> open_offers(const ElasticJobView& job,
                                   const std::map<std::string, int>& taken) {
  std::set<std::string> occupied;
  for (const CompanionView& companion : job.companions) occupied.insert(companion.node);
  std::vector<NodeOffer> open;
  for (NodeOffer offer : job.offers) {
    if (const auto used = taken.find(offer.node); used != taken.end()) offer.gpus -= used->second;
    if (offer.gpus > 0 && occupied.insert(offer.node).second) open.push_back(offer);
  }
  return open;
}

int64_t failure_pause(const ElasticJobView& job, const Parameters& parameters) {
  const int doublings = std::clamp(job.failures - 1, 0, 6);
  return parameters.retry_after_failure_seconds << doublings;
}

class Grower {
 public:
  Grower(const Snapshot& snapshot, const Parameters& parameters, std::map<std::string, int>& taken)
      : snapshot_(snapshot),
        parameters_(parameters),
        rate_(arrival_rate(snapshot, parameters)),
        taken_(taken) {}

  Decision decide(const ElasticJobView& job) {
    Decision decision;
    decision.job_id = job.job_id;
    decision.from_gpus = decision.to_gpus = job.held_gpus;
    decision.inputs = {{"held", job.held_gpus}, {"base", job.base_gpus}};
    if (!cannot_grow(job, decision) && choose_entry(job, decision) && worth_it(job, decision))
      accept(decision);
    return decision;
  }

 private:
  int cap(const ElasticJobView& job) const {
    const int by_factor =
        static_cast<int>(std::floor(parameters_.max_growth * job.base_gpus + 1e-9));
    return job.max_gpus > 0 ? std::min(job.max_gpus, by_factor) : by_factor;
  }

  static bool refuse(Decision& decision, std::string_view rule, std::string reason,
                     std::string_view formula = "") {
    decision.kind = DecisionKind::kRefuseGrow;
    decision.rule = rule;
    decision.reason = std::move(reason);
    decision.formula = formula;
    return true;
  }

  // The rules that need no table entry. True when one of them refuses.
  bool cannot_grow(const ElasticJobView& job, Decision& decision) const {
    auto& in = decision.inputs;
    if (!job.hold_rule.empty()) return refuse(decision, job.hold_rule, job.hold_reason);
    if (!job.steady)
      return refuse(decision, "not-steady",
                    fmt::format("job {} is not in a steady state: {}", job.job_id,
                                job.not_steady_reason.empty() ? "a switch is under way"
                                                              : job.not_steady_reason));
    in["max"] = cap(job);
    if (job.held_gpus >= cap(job))
      return refuse(
          decision, "at-max",
          fmt::format("job {} holds {}, its most ({} asked for at most, {:g}x the base of "
                      "{} allowed)",
                      job.job_id, gpu_count(job.held_gpus), job.max_gpus, parameters_.max_growth,
                      job.base_gpus),
          "held < max");
    if (job.table.empty())
      return refuse(decision, "no-table",
                    fmt::format("job {} has sent no scale table yet", job.job_id));
    in["waiting"] = static_cast<double>(snapshot_.waiting.size());
    in["other_waiting"] = snapshot_.other_waiting_gpu_jobs;
    if (parameters_.require_empty_queue && !snapshot_.waiting.empty())
      return refuse(decision, "queue-not-empty",
                    fmt::format("{} job{} for GPUs (first: job {}, {})", snapshot_.waiting.size(),
                                snapshot_.waiting.size() == 1 ? " waits" : "s wait",
                                snapshot_.waiting[0].job_id, gpu_count(snapshot_.waiting[0].gpus)),
                    "waiting = 0");
    return pausing(job, decision);
  }

  bool pausing(const ElasticJobView& job, Decision& decision) const {
    auto& in = decision.inputs;
    if (job.failures > 0 && job.last_failure_time > 0) {
      const int64_t since = snapshot_.now - job.last_failure_time;
      const int64_t pause = failure_pause(job, parameters_);
      if (since < pause) {
        in["since_failure"] = static_cast<double>(since);
        in["pause"] = static_cast<double>(pause);
        in["failures"] = job.failures;
        return refuse(
            decision, "failure-pause",
            fmt::format("the last switch of job {} failed {} s ago ({} in a row); the next "
                        "try is after {} s",
                        job.job_id, since, job.failures, pause),
            "since_failure >= pause");
      }
    }
    if (parameters_.cooldown_seconds > 0 && job.last_switch_time > 0) {
      const int64_t since = snapshot_.now - job.last_switch_time;
      if (since < parameters_.cooldown_seconds) {
        in["since_switch"] = static_cast<double>(since);
        in["cooldown"] = static_cast<double>(parameters_.cooldown_seconds);
        return refuse(decision, "cooldown",
                      fmt::format("job {} switched {} s ago; the cooldown is {} s", job.job_id,
                                  since, parameters_.cooldown_seconds),
                      "since_switch >= cooldown");
      }
    }
    return false;
  }

  // The entry with the highest throughput within cap and idle GPUs; fills to_gpus and take.
  bool choose_entry(const ElasticJobView& job, Decision& decision) {
    auto& in = decision.inputs;
    const std::vector<NodeOffer> open = open_offers(job, taken_);
    int idle = 0;
    for (const NodeOffer& offer : open) idle += offer.gpus;
    in["idle"] = idle;
    if (idle == 0) {
      refuse(decision, "no-idle",
             fmt::format("no idle GPU fits the companions of job {} ({} of {} GPUs idle in all)",
                         job.job_id, snapshot_.idle_gpus, snapshot_.total_gpus),
             "idle > 0");
      return false;
    }
    const double now = tokens_per_second(job.table, job.held_gpus);
    const int most = std::min(cap(job), job.held_gpus + idle);
    const TableEntry* best = nullptr;
    for (const TableEntry& entry : job.table)
      if (entry.gpus > job.held_gpus && entry.gpus <= most && entry.tokens_per_second > now &&
          (best == nullptr || entry.tokens_per_second > best->tokens_per_second))
        best = &entry;
    if (best == nullptr || now <= 0) {
      refuse(
          decision, "no-entry",
          fmt::format("job {} holds {}, {} idle ones fit it, its most is {}: no entry of its scale "
                      "table within {} is faster",
                      job.job_id, gpu_count(job.held_gpus), idle, cap(job), gpu_count(most)),
          "held < N <= min(max, held + idle)");
      return false;
    }
    in["N"] = best->gpus;
    in["v_now"] = now;
    in["v_new"] = best->tokens_per_second;
    in["S"] = best->tokens_per_second / now;
    decision.to_gpus = best->gpus;
    // The offers cover it: most is at most held + idle.
    decision.take = *choose_nodes(open, best->gpus - job.held_gpus);
    return true;
  }

  // Gate and guard; refuses, or leaves the decision a growth with its reason.
  bool worth_it(const ElasticJobView& job, Decision& decision) const {
    auto& in = decision.inputs;
    const double speedup = in["S"];
    const bool measured = job.grow_overhead_seconds > 0;
    const double overhead =
        measured ? job.grow_overhead_seconds : parameters_.default_overhead_seconds;
    in["O"] = overhead;
    in["O_measured"] = measured ? 1 : 0;
    const std::string overhead_text =
        fmt::format("{:.1f} s{}", overhead, measured ? "" : " (assumed, none measured yet)");
    if (parameters_.gate != Gate::kNone) {
      in["lambda"] = rate_.per_second;
      in["arrivals"] = rate_.arrivals;
      in["T"] = rate_.seconds;
      in["P"] = benefit_probability(parameters_.gate, rate_.per_second, overhead, speedup);
      in["P_th"] = parameters_.gate_probability;
      decision.formula = gate_formula(parameters_.gate);
    }
    const bool guarded = parameters_.remaining_time_guard && job.remaining_seconds.has_value();
    if (guarded) {
      in["R"] = *job.remaining_seconds;
      in["saved"] = *job.remaining_seconds - *job.remaining_seconds / speedup;
      if (!(in["saved"] > overhead)) {
        refuse(decision, "guard",
               fmt::format(
                   "going from {} to {} ({:.2f}x) would save {:.1f} s of the {:.1f} s that job "
                   "{} still runs, but the switch costs {}",
                   job.held_gpus, gpu_count(decision.to_gpus), speedup, in["saved"], in["R"],
                   job.job_id, overhead_text),
               "saved = R - R/S > O");
        return clear(decision);
      }
    }
    const std::string arrivals = fmt::format("{} arrival{} in {:.1f} h", rate_.arrivals,
                                             rate_.arrivals == 1 ? "" : "s", rate_.seconds / 3600);
    if (parameters_.gate != Gate::kNone && !(in["P"] > in["P_th"])) {
      refuse(
          decision, "gate",
          fmt::format("going from {} to {} ({:.2f}x) costs {}; with {} the GPUs stay long enough "
                      "with probability {:.3f}, not above {:g}",
                      job.held_gpus, gpu_count(decision.to_gpus), speedup, overhead_text, arrivals,
                      in["P"], in["P_th"]),
          decision.formula);
      return clear(decision);
    }
    decision.kind = DecisionKind::kGrow;
    decision.rule = parameters_.gate == Gate::kNone ? "best-entry" : "gate";
    decision.reason = fmt::format(
        "{} idle GPUs fit job {}; with {} instead of {} it runs {:.2f}x as "
        "fast, the switch costs {}",
        static_cast<int>(in["idle"]), job.job_id, gpu_count(decision.to_gpus), job.held_gpus,
        speedup, overhead_text);
    if (parameters_.gate != Gate::kNone)
      decision.reason += fmt::format(", and with {} it pays with probability {:.3f} > {:g}",
                                     arrivals, in["P"], in["P_th"]);
    if (guarded) {
      decision.reason +=
          fmt::format("; it saves {:.1f} s of the {:.1f} s left", in["saved"], in["R"]);
      decision.formula +=
          std::string(decision.formula.empty() ? "" : " and ") + "saved = R - R/S > O";
    }
    return true;
  }

  static bool clear(Decision& decision) {  // a refusal takes nothing
    decision.take.clear();
    return false;
  }

  void accept(const Decision& decision) {
    for (const NodeOffer& offer : decision.take) taken_[offer.node] += offer.gpus;
  }

  const Snapshot& snapshot_;
  const Parameters& parameters_;
  const ArrivalRate rate_;
  std::map<std::string, int>& taken_;
};

}  // namespace

std::vector<Decision> grow(const Snapshot& snapshot, const Parameters& parameters,
                           const std::set<uint32_t>& busy, std::map<std::string, int>& taken) {
  std::vector<const ElasticJobView*> order;
  for (const ElasticJobView& job : snapshot.elastic)
    if (busy.count(job.job_id) == 0) order.push_back(&job);
  std::sort(order.begin(), order.end(), [](const ElasticJobView* a, const ElasticJobView* b) {
    return a->held_gpus != b->held_gpus ? a->held_gpus < b->held_gpus : a->job_id < b->job_id;
  });
  Grower grower(snapshot, parameters, taken);
  std::vector<Decision> growths, refusals;
  for (const ElasticJobView* job : order) {
    Decision decision = grower.decide(*job);
    (decision.kind == DecisionKind::kGrow ? growths : refusals).push_back(std::move(decision));
  }
  growths.insert(growths.end(), refusals.begin(), refusals.end());
  return growths;
}

}  // namespace flextrain::policy
