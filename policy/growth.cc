// SPDX-License-Identifier: MIT
#include "policy/growth.h"

#include <algorithm>

#include "policy/gate.h"
#include "policy/growth_rules.h"
#include "policy/selection.h"
#include "policy/text.h"

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

class Grower {
 public:
  Grower(const Snapshot& snapshot, const Parameters& parameters, std::map<std::string, int>& taken)
      : snapshot_(snapshot), parameters_(parameters), taken_(taken) {
    for (const auto& [node, gpus] : taken) taken_gpus_ += gpus;
  }

  Decision decide(const ElasticJobView& job) {
    Decision decision;
    decision.job_id = job.job_id;
    decision.from_gpus = decision.to_gpus = job.held_gpus;
    decision.inputs = {{"held", job.held_gpus}, {"base", job.base_gpus}};
    if (!job.hold_rule.empty()) {
      refuse(decision, job.hold_rule, job.hold_reason);
      return decision;
    }
    const std::vector<NodeOffer> open = open_offers(job, taken_);
    int fitting = 0;
    for (const NodeOffer& offer : open) fitting += offer.gpus;
    const GrowthVerdict verdict = judge(job, fitting);
    if (verdict.entry == nullptr) {
      cannot_grow(job, fitting, verdict, decision);
      return decision;
    }
    weighed(job, fitting, verdict, decision);
    if (verdict.rule == GrowthRule::kGrow) {
      // The offers cover it: the entry is within held + fitting.
      decision.take = *choose_nodes(open, verdict.entry->gpus - job.held_gpus);
      for (const NodeOffer& offer : decision.take) taken_[offer.node] += offer.gpus;
      taken_gpus_ += verdict.entry->gpus - job.held_gpus;
    }
    return decision;
  }

 private:
  GrowthVerdict judge(const ElasticJobView& job, int fitting) const {
    PoolFacts pool;
    pool.now = static_cast<double>(snapshot_.now);
    pool.jobs_wait = !snapshot_.waiting.empty();
    pool.idle_gpus = std::max(0, snapshot_.idle_gpus - taken_gpus_);
    JobFacts facts;
    facts.steady = job.steady;
    facts.base_gpus = job.base_gpus;
    facts.held_gpus = job.held_gpus;
    facts.max_gpus = job.max_gpus;
    facts.fitting_gpus = fitting;
    facts.table = &job.table;
    facts.remaining_seconds = job.remaining_seconds;
    facts.grow_overhead = job.grow_overhead_seconds;
    facts.shrink_overhead = job.shrink_overhead_seconds;
    facts.last_switch_time = static_cast<double>(job.last_switch_time);
    facts.last_failure_time = static_cast<double>(job.last_failure_time);
    facts.failures = job.failures;
    return judge_growth(parameters_, pool, facts,
                        [&](int margin) { return snapshot_.forecast.rate(margin); });
  }

  static void refuse(Decision& decision, std::string_view rule, std::string reason,
                     std::string_view formula = "") {
    decision.kind = DecisionKind::kRefuseGrow;
    decision.rule = rule;
    decision.reason = std::move(reason);
    decision.formula = formula;
  }

  // Words for the rules that refuse before an entry is weighed.
  void cannot_grow(const ElasticJobView& job, int fitting, const GrowthVerdict& verdict,
                   Decision& decision) const {
    auto& in = decision.inputs;
    if (verdict.rule == GrowthRule::kNotSteady)
      return refuse(decision, "not-steady",
                    fmt::format("job {} is not in a steady state: {}", job.job_id,
                                job.not_steady_reason.empty() ? "a switch is under way"
                                                              : job.not_steady_reason));
    in["max"] = verdict.cap;
    if (verdict.rule == GrowthRule::kAtMax)
      return refuse(
          decision, "at-max",
          fmt::format("job {} holds {}, its most ({} asked for at most, {:g}x the base of "
                      "{} allowed)",
                      job.job_id, gpu_count(job.held_gpus), job.max_gpus, parameters_.max_growth,
                      job.base_gpus),
          "held < max");
    if (verdict.rule == GrowthRule::kNoTable)
      return refuse(decision, "no-table",
                    fmt::format("job {} has sent no scale table yet", job.job_id));
    in["waiting"] = static_cast<double>(snapshot_.waiting.size());
    in["other_waiting"] = snapshot_.other_waiting_gpu_jobs;
    if (verdict.rule == GrowthRule::kQueueNotEmpty)
      return refuse(decision, "queue-not-empty",
                    fmt::format("{} job{} for GPUs (first: job {}, {})", snapshot_.waiting.size(),
                                snapshot_.waiting.size() == 1 ? " waits" : "s wait",
                                snapshot_.waiting[0].job_id, gpu_count(snapshot_.waiting[0].gpus)),
                    "waiting = 0");
    if (verdict.rule == GrowthRule::kFailurePause) {
      in["since_failure"] = verdict.since;
      in["pause"] = verdict.pause;
      in["failures"] = job.failures;
      return refuse(decision, "failure-pause",
                    fmt::format("the last switch of job {} failed {} s ago ({} in a row); the next "
                                "try is after {} s",
                                job.job_id, verdict.since, job.failures, verdict.pause),
                    "since_failure >= pause");
    }
    if (verdict.rule == GrowthRule::kCooldown) {
      in["since_switch"] = verdict.since;
      in["cooldown"] = verdict.pause;
      return refuse(decision, "cooldown",
                    fmt::format("job {} switched {} s ago; the cooldown is {} s", job.job_id,
                                verdict.since, verdict.pause),
                    "since_switch >= cooldown");
    }
    in["idle"] = fitting;
    if (verdict.rule == GrowthRule::kNoIdle)
      return refuse(
          decision, "no-idle",
          fmt::format("no idle GPU fits the companions of job {} ({} of {} GPUs idle in all)",
                      job.job_id, snapshot_.idle_gpus, snapshot_.total_gpus),
          "idle > 0");
    refuse(decision, "no-entry",
           fmt::format("job {} holds {}, {} idle ones fit it, its most is {}: no entry of its "
                       "scale table within {} is faster",
                       job.job_id, gpu_count(job.held_gpus), fitting, verdict.cap,
                       gpu_count(verdict.most)),
           "held < N <= min(max, held + idle)");
  }

  // Words for an entry that was weighed: guard, gate, growth.
  void weighed(const ElasticJobView& job, int fitting, const GrowthVerdict& verdict,
               Decision& decision) const {
    const Forecast& forecast = snapshot_.forecast;
    const bool net = parameters_.gate == Gate::kNetBenefit;
    auto& in = decision.inputs;
    in["max"] = verdict.cap;
    in["waiting"] = static_cast<double>(snapshot_.waiting.size());
    in["other_waiting"] = snapshot_.other_waiting_gpu_jobs;
    in["idle"] = fitting;
    in["N"] = verdict.entry->gpus;
    in["v_now"] = verdict.now_tokens;
    in["v_new"] = verdict.entry->tokens_per_second;
    in["S"] = verdict.speedup;
    in["O"] = verdict.overhead;
    in["O_measured"] = verdict.overhead_measured ? 1 : 0;
    decision.to_gpus = verdict.entry->gpus;
    if (parameters_.gate != Gate::kNone) {
      in["lambda"] = verdict.lambda;
      in["arrivals"] = forecast.arrivals;
      in["T"] = forecast.seconds;
      in["margin"] =
          std::max(0, snapshot_.idle_gpus - taken_gpus_) - (verdict.entry->gpus - job.held_gpus);
      decision.formula = gate_formula(parameters_.gate);
      if (net) {
        in["E"] = verdict.value;
        in["O_d"] = verdict.overhead_back;
      } else {
        in["P"] = verdict.value;
        in["P_th"] = parameters_.gate_probability;
      }
    }
    const bool guarded = parameters_.remaining_time_guard && verdict.remaining.has_value();
    if (guarded || (net && verdict.remaining)) in["R"] = *verdict.remaining;
    if (guarded) in["saved"] = verdict.saved;
    const std::string pause_text =
        fmt::format("{:.1f} s{}", verdict.overhead,
                    verdict.overhead_measured ? "" : " (assumed, none measured yet)");
    if (verdict.rule == GrowthRule::kGuard)
      return refuse(
          decision, "guard",
          fmt::format("going from {} to {} ({:.2f}x) would save {:.1f} s of the {:.1f} s that job "
                      "{} still runs, but the switch costs {}",
                      job.held_gpus, gpu_count(decision.to_gpus), verdict.speedup, verdict.saved,
                      *verdict.remaining, job.job_id, pause_text),
          "saved = R - R/S > O");
    const std::string arrivals =
        fmt::format("{} arrival{} in {:.1f} h", forecast.arrivals,
                    forecast.arrivals == 1 ? "" : "s", forecast.seconds / 3600);
    if (verdict.rule == GrowthRule::kGate)
      return refuse(
          decision, "gate",
          fmt::format(
              "going from {} to {} ({:.2f}x) costs {}; with {} {}", job.held_gpus,
              gpu_count(decision.to_gpus), verdict.speedup, pause_text, arrivals,
              net ? fmt::format("it saves {:.1f} s on average, not more than 0", verdict.value)
                  : fmt::format("the GPUs stay long enough with probability {:.3f}, not "
                                "above {:g}",
                                verdict.value, parameters_.gate_probability)),
          decision.formula);
    decision.kind = DecisionKind::kGrow;
    decision.rule = parameters_.gate == Gate::kNone ? "best-entry" : "gate";
    decision.reason = fmt::format(
        "{} idle GPUs fit job {}; with {} instead of {} it runs {:.2f}x as "
        "fast, the switch costs {}",
        fitting, job.job_id, gpu_count(decision.to_gpus), job.held_gpus, verdict.speedup,
        pause_text);
    if (net)
      decision.reason +=
          fmt::format(", and with {} it saves {:.1f} s on average", arrivals, verdict.value);
    else if (parameters_.gate != Gate::kNone)
      decision.reason += fmt::format(", and with {} it pays with probability {:.3f} > {:g}",
                                     arrivals, verdict.value, parameters_.gate_probability);
    if (guarded) {
      decision.reason +=
          fmt::format("; it saves {:.1f} s of the {:.1f} s left", in["saved"], in["R"]);
      decision.formula +=
          std::string(decision.formula.empty() ? "" : " and ") + "saved = R - R/S > O";
    }
  }

  const Snapshot& snapshot_;
  const Parameters& parameters_;
  std::map<std::string, int>& taken_;
  int taken_gpus_ = 0;
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
