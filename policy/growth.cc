// SPDX-License-Identifier: MIT
#include "policy/growth.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "policy/caps.h"
#include "policy/gate.h"
#include "policy/growth_rules.h"
#include "policy/selection.h"
#include "policy/text.h"

namespace flextrain::policy {
namespace {

class Grower {
 public:
  Grower(const Snapshot& snapshot, const Parameters& parameters, const NodeIndex& nodes,
         std::vector<int>& taken, const Probes& probes)
      : snapshot_(snapshot),
        parameters_(parameters),
        nodes_(nodes),
        taken_(taken),
        probes_(probes),
        barred_(nodes.size(), 0),
        quiet_(parameters.quiet_hours.contains(snapshot.now + snapshot.local_offset_seconds)),
        caps_(snapshot, parameters) {
    taken_gpus_ = std::accumulate(taken.begin(), taken.end(), 0);
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
    const std::vector<IndexedOffer> open = open_offers(job);
    int fitting = 0;
    for (const IndexedOffer& offer : open) fitting += offer.gpus;
    const GrowthVerdict verdict = judge(job, fitting);
    if (verdict.entry == nullptr) {
      cannot_grow(job, fitting, verdict, decision);
      return decision;
    }
    weighed(job, fitting, verdict, decision);
    if (verdict.rule == GrowthRule::kGrow) {
      // The offers cover it: the entry is within held + fitting.
      const auto chosen = choose_nodes(open, verdict.entry->gpus - job.held_gpus);
      for (const IndexedOffer& take : *chosen) {
        decision.take.push_back({nodes_.name(take.node), take.gpus});
        taken_[static_cast<size_t>(take.node)] += take.gpus;
      }
      taken_gpus_ += verdict.entry->gpus - job.held_gpus;
      caps_.add_growth(job.user, job.account, verdict.entry->gpus - job.held_gpus);
    }
    return decision;
  }

 private:
  // What the job may take now: its offers less what others took, without its own nodes and those
  // that hold a companion of it (one companion per node, so that each can be given back alone).
  std::vector<IndexedOffer> open_offers(const ElasticJobView& job) {
    ++round_;
    const auto bar = [&](int node) {
      return std::exchange(barred_[static_cast<size_t>(node)], round_) != round_;
    };
    for (const CompanionView& companion : job.companions) bar(nodes_.number(companion.node));
    for (const std::string& node : job.own_nodes) bar(nodes_.number(node));
    std::vector<IndexedOffer> open;
    open.reserve(job.offers.size());
    for (IndexedOffer offer : nodes_.offers(job.offers)) {
      offer.gpus -= taken_[static_cast<size_t>(offer.node)];
      if (offer.gpus > 0 && bar(offer.node)) open.push_back(offer);
    }
    return open;
  }

  GrowthVerdict judge(const ElasticJobView& job, int fitting) const {
    PoolFacts pool;
    pool.now = static_cast<double>(snapshot_.now);
    pool.quiet = quiet_;
    pool.jobs_wait = !snapshot_.waiting.empty();
    pool.idle_gpus = std::max(0, snapshot_.idle_gpus - taken_gpus_);
    JobFacts facts;
    facts.steady = job.steady;
    facts.base_gpus = job.base_gpus;
    facts.held_gpus = job.held_gpus;
    facts.max_gpus = job.max_gpus;
    facts.fitting_gpus = fitting;
    facts.table = &job.table;
    const Allowance allowance = caps_.left(job.user, job.account);
    facts.allowed_gpus = allowance.gpus;
    facts.allowed_by = allowance.rule;
    facts.remaining_seconds = job.remaining_seconds;
    facts.age = static_cast<double>(std::max<int64_t>(0, snapshot_.now - job.start_time));
    facts.scalings_last_hour = job.scalings_last_hour;
    facts.grow_overhead = job.grow_overhead_seconds;
    facts.shrink_overhead = job.shrink_overhead_seconds;
    facts.last_switch_time = static_cast<double>(job.last_switch_time);
    facts.last_failure_time = static_cast<double>(job.last_failure_time);
    facts.failures = job.failures;
    if (probes_.growth) probes_.growth(job, pool, facts);
    return judge_growth(parameters_, pool, facts,
                        [&](int margin) { return snapshot_.forecast.rate(margin); });
  }

  double waiting() const {
    return static_cast<double>(snapshot_.waiting.size()) + snapshot_.more_waiting;
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
    if (verdict.rule == GrowthRule::kQuietHours)
      return refuse(
          decision, "quiet-hours",
          fmt::format("nobody grows in the quiet hours ({})", parameters_.quiet_hours.text()));
    in["waiting"] = waiting();
    in["other_waiting"] = snapshot_.other_waiting_gpu_jobs;
    if (verdict.rule == GrowthRule::kQueueNotEmpty)
      return refuse(decision, "queue-not-empty",
                    fmt::format("{} job{} for GPUs (first: job {}, {})", waiting(),
                                waiting() == 1 ? " waits" : "s wait", snapshot_.waiting[0].job_id,
                                gpu_count(snapshot_.waiting[0].gpus)),
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
    if (verdict.rule == GrowthRule::kScalingsPerHour) {
      in["scalings"] = job.scalings_last_hour;
      in["most_scalings"] = parameters_.max_scalings_per_hour;
      return refuse(decision, "scalings-per-hour",
                    fmt::format("job {} switched {} times within an hour, as often as it may",
                                job.job_id, job.scalings_last_hour),
                    "scalings < most_scalings");
    }
    in["idle"] = fitting;
    if (verdict.rule == GrowthRule::kUserCap || verdict.rule == GrowthRule::kAccountCap ||
        verdict.rule == GrowthRule::kIdleReserve)
      return capped(job, fitting, verdict.rule, decision);
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

  // Words for the caps: none of the entries within one is faster.
  void capped(const ElasticJobView& job, int fitting, GrowthRule rule, Decision& decision) const {
    const Allowance allowance = caps_.left(job.user, job.account);
    decision.inputs["left"] = std::max(0, allowance.gpus);
    const std::string reserve = fmt::format(
        "{:g} % of the GPUs that no base and no other job holds", 100 * parameters_.idle_reserve);
    const auto [name, whose, most] =
        rule == GrowthRule::kUserCap
            ? std::tuple("user-cap", fmt::format("the jobs of {}", job.user),
                         gpu_count(parameters_.user_max_expanded))
        : rule == GrowthRule::kAccountCap
            ? std::tuple("account-cap", fmt::format("the jobs of account {}", job.account),
                         gpu_count(parameters_.account_max_expanded))
            : std::tuple("idle-reserve", std::string("all elastic jobs"),
                         fmt::format("all but {}", reserve));
    refuse(decision, name,
           fmt::format("{} may hold {} beyond their bases; {} of the {} idle ones that fit job {} "
                       "are left within that, too few for a faster entry",
                       whose, most, std::max(0, allowance.gpus), fitting, job.job_id),
           "held < N <= min(max, held + left)");
  }

  // Words for an entry that was weighed: guard, gate, growth.
  void weighed(const ElasticJobView& job, int fitting, const GrowthVerdict& verdict,
               Decision& decision) const {
    const Forecast& forecast = snapshot_.forecast;
    const bool net = parameters_.gate == Gate::kNetBenefit;
    auto& in = decision.inputs;
    in["max"] = verdict.cap;
    in["waiting"] = waiting();
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
    const bool guarded = parameters_.remaining_time_guard;
    if (guarded || net) in["R"] = *verdict.remaining;
    if (guarded) in["saved"] = verdict.saved;
    const std::string pause_text =
        fmt::format("{:.1f} s{}", verdict.overhead,
                    verdict.overhead_measured ? "" : " (assumed, none measured yet)");
    const std::string source = verdict.remaining_by_age
                                   ? " (its age: neither its progress nor a limit is known)"
                               : job.remaining_source.empty()    ? ""
                               : job.remaining_source == "limit" ? " (its time limit)"
                                                                 : " (its progress)";
    if (verdict.rule == GrowthRule::kGuard)
      return refuse(
          decision, "guard",
          fmt::format("going from {} to {} ({:.2f}x) would save {:.1f} s of the {:.1f} s that job "
                      "{} still runs{}, but the switch costs {}",
                      job.held_gpus, gpu_count(decision.to_gpus), verdict.speedup, verdict.saved,
                      *verdict.remaining, job.job_id, source, pause_text),
          "saved = R - R/S > O");
    const std::string arrivals =
        parameters_.forecast == ForecastKind::kIdle
            ? fmt::format("{} ends of idleness in {:.1f} h", forecast.arrivals,
                          forecast.seconds / 3600)
            : fmt::format("{} arrival{} in {:.1f} h", forecast.arrivals,
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
          fmt::format("; it saves {:.1f} s of the {:.1f} s left{}", in["saved"], in["R"], source);
      decision.formula +=
          std::string(decision.formula.empty() ? "" : " and ") + "saved = R - R/S > O";
    }
  }

  const Snapshot& snapshot_;
  const Parameters& parameters_;
  const NodeIndex& nodes_;
  std::vector<int>& taken_;  // by node
  const Probes& probes_;
  int taken_gpus_ = 0;
  std::vector<int> barred_;  // by node: the round in which it was
  int round_ = 0;
  const bool quiet_;
  Caps caps_;
};

}  // namespace

std::vector<Decision> grow(const Snapshot& snapshot, const Parameters& parameters,
                           const NodeIndex& nodes, const std::set<uint32_t>& busy,
                           std::vector<int>& taken, const Probes& probes) {
  std::vector<const ElasticJobView*> order;
  for (const ElasticJobView& job : snapshot.elastic)
    if (busy.count(job.job_id) == 0) order.push_back(&job);
  std::sort(order.begin(), order.end(), [](const ElasticJobView* a, const ElasticJobView* b) {
    return a->held_gpus != b->held_gpus ? a->held_gpus < b->held_gpus : a->job_id < b->job_id;
  });
  Grower grower(snapshot, parameters, nodes, taken, probes);
  std::vector<Decision> growths, refusals;
  for (const ElasticJobView* job : order) {
    Decision decision = grower.decide(*job);
    (decision.kind == DecisionKind::kGrow ? growths : refusals).push_back(std::move(decision));
  }
  growths.insert(growths.end(), refusals.begin(), refusals.end());
  return growths;
}

}  // namespace flextrain::policy
