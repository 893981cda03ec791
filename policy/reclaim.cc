// SPDX-License-Identifier: MIT
// The waiting jobs in Slurm's order. For each: when what is idle (or already on its way back) fits
// its shape, it starts by itself. Else victims are asked in the order of policy/victims.h: one that
// covers the need alone, or as many as it takes until the job fits; then everything that is not
// needed is given back to them, the last asked first. A victim left
// with a count that is none of its entries drops to its best entry below, and what that frees
// counts too. When all victims together do not suffice, nothing is touched for this job and it
// queues.
#include "policy/reclaim.h"

#include <algorithm>
#include <set>

#include "policy/selection.h"
#include "policy/text.h"
#include "policy/throughput.h"
#include "policy/victims.h"

namespace flextrain::policy {
namespace {

using NodeCount = std::map<std::string, int>;

int needed_nodes(const WaitingJob& job) {
  const int by_gpus =
      job.gpus_per_node > 0 ? (job.gpus + job.gpus_per_node - 1) / job.gpus_per_node : 1;
  return std::max({job.nodes, by_gpus, 1});
}

int needed_gpus(const WaitingJob& job) {
  return job.gpus_per_node > 0 ? needed_nodes(job) * job.gpus_per_node : job.gpus;
}

bool fits(const WaitingJob& job, const NodeCount& free) {
  int nodes = 0, gpus = 0;
  for (const auto& [node, count] : free) {
    if (count < std::max(job.gpus_per_node, 1)) continue;
    ++nodes;
    gpus += count;
  }
  return nodes >= needed_nodes(job) && (job.gpus_per_node > 0 || gpus >= job.gpus);
}

// What a fitting job will occupy, added to `taken`: fully used nodes first. Which nodes Slurm picks
// is its own affair; this is one possible choice.
void occupy(const WaitingJob& job, const NodeCount& free, NodeCount& taken) {
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [node, count] : free)
    if (count >= std::max(job.gpus_per_node, 1)) order.emplace_back(count, node);
  std::sort(order.begin(), order.end());
  if (job.gpus_per_node > 0) {  // the tightest nodes
    const auto nodes = static_cast<size_t>(needed_nodes(job));
    for (size_t i = 0; i < nodes && i < order.size(); ++i)
      taken[order[i].second] += job.gpus_per_node;
    return;
  }
  std::reverse(order.begin(), order.end());  // the fewest nodes, but as many as it asks for
  int rest = job.gpus, nodes_left = needed_nodes(job);
  for (const auto& [count, node] : order) {
    if (rest <= 0) break;
    const int take = std::min(count, std::max(1, rest - (nodes_left - 1)));
    taken[node] += std::min(take, rest);
    rest -= std::min(take, rest);
    nodes_left = std::max(1, nodes_left - 1);
  }
}

struct Victim {
  const ElasticJobView* job = nullptr;
  double gain = 1;
  std::vector<CompanionView> companions;  // still held
  std::vector<CompanionView> given;
  std::vector<const WaitingJob*> beneficiaries;
  std::map<std::string, double> inputs;  // of the first reclaim
};

struct Candidate {  // a companion that could go back for the job at hand
  size_t rank = 0;  // of its victim in the order in which they are asked
  CompanionView companion;
};

class Reclaimer {
 public:
  Reclaimer(const Snapshot& snapshot, VictimRule rule) : snapshot_(snapshot), rule_(rule) {
    for (const ElasticJobView& job : snapshot.elastic) {
      for (const CompanionView& companion : job.companions)
        if (companion.leaving) freed_[companion.node] += companion.gpus;
      if (!job.steady) continue;
      Victim victim{&job, gain_over_base(job), {}, {}, {}, {}};
      for (const CompanionView& companion : job.companions)
        if (!companion.leaving) victim.companions.push_back(companion);
      if (!victim.companions.empty()) victims_.push_back(victim);
    }
    std::sort(victims_.begin(), victims_.end(),
              [](const Victim& a, const Victim& b) { return a.job->job_id < b.job->job_id; });
  }

  ReclaimOutcome run() {
    ReclaimOutcome outcome;
    for (const WaitingJob& job : snapshot_.waiting) serve(job, outcome.decisions);
    std::vector<Decision> shrinks;
    for (const Victim& victim : victims_)
      if (!victim.given.empty()) shrinks.push_back(shrink_decision(victim));
    outcome.decisions.insert(outcome.decisions.begin(), shrinks.begin(), shrinks.end());
    outcome.taken = taken_;
    return outcome;
  }

 private:
  // Free for `job`: its idle offers and what is coming back on nodes it can use, less what earlier
  // jobs take.
  NodeCount free_for(const WaitingJob& job) const {
    const std::set<std::string> usable(job.usable_nodes.begin(), job.usable_nodes.end());
    NodeCount free;
    for (const NodeOffer& offer : job.offers)
      free[offer.node] = std::max(free[offer.node], offer.gpus);
    for (const auto& [node, gpus] : freed_)
      if (usable.count(node) != 0 || free.count(node) != 0) free[node] += gpus;
    for (auto& [node, gpus] : free)
      if (const auto used = taken_.find(node); used != taken_.end())
        gpus = std::max(0, gpus - used->second);
    return free;
  }

  bool fits_with(const WaitingJob& job, NodeCount free,
                 const std::vector<Candidate>& chosen) const {
    for (const Candidate& candidate : chosen)
      free[candidate.companion.node] += candidate.companion.gpus;
    return fits(job, free);
  }

  // Removes what `job` does not need from the victims of rank `first_rank` and later: the last
  // victim's companions first, of one victim the largest first.
  void prune(const WaitingJob& job, const NodeCount& free, std::vector<Candidate>& chosen,
             size_t first_rank) const {
    std::vector<Candidate> order = chosen;
    std::sort(order.begin(), order.end(), [](const Candidate& a, const Candidate& b) {
      if (a.rank != b.rank) return a.rank > b.rank;
      if (a.companion.gpus != b.companion.gpus) return a.companion.gpus > b.companion.gpus;
      return a.companion.job_id > b.companion.job_id;
    });
    for (const Candidate& candidate : order) {
      if (candidate.rank < first_rank) continue;
      std::vector<Candidate> fewer;
      for (const Candidate& other : chosen)
        if (other.companion.job_id != candidate.companion.job_id) fewer.push_back(other);
      if (fits_with(job, free, fewer)) chosen = fewer;
    }
  }

  void serve(const WaitingJob& job, std::vector<Decision>& decisions) {
    const NodeCount free = free_for(job);
    if (fits(job, free)) return occupy(job, free, taken_);

    const std::set<std::string> usable(job.usable_nodes.begin(), job.usable_nodes.end());
    const std::vector<size_t> order = ranked(job, total(free), usable);
    std::vector<Candidate> chosen;
    bool enough = false;
    if (rule_ == VictimRule::kSmallestSufficient)  // one alone
      for (size_t rank = 0; rank < order.size() && !enough; ++rank) {
        chosen = candidates(order, rank, usable);
        enough = fits_with(job, free, chosen);
      }
    if (!enough) chosen.clear();
    for (size_t rank = 0; rank < order.size() && !enough; ++rank) {
      for (const Candidate& candidate : candidates(order, rank, usable))
        chosen.push_back(candidate);
      enough = fits_with(job, free, chosen);
    }
    if (!enough) {
      if (std::optional<Decision> decision = abort_decision(job, free, chosen, usable))
        decisions.push_back(*decision);
      return;
    }
    prune(job, free, chosen, 0);
    give_back(job, free, order, chosen);
    occupy(job, free_for(job), taken_);
  }

  std::vector<size_t> ranked(const WaitingJob& job, int idle,
                             const std::set<std::string>& usable) const {
    std::vector<VictimFacts> facts;
    for (const Victim& victim : victims_) {
      int expanded = 0;
      for (const CompanionView& companion : victim.companions)
        if (usable.count(companion.node) != 0) expanded += companion.gpus;
      facts.push_back({victim.job->job_id, expanded});
    }
    return victim_order(rule_, facts, std::max(1, needed_gpus(job) - idle));
  }

  std::vector<Candidate> candidates(const std::vector<size_t>& order, size_t rank,
                                    const std::set<std::string>& usable) const {
    std::vector<Candidate> list;
    for (const CompanionView& companion : victims_[order[rank]].companions)
      if (usable.count(companion.node) != 0) list.push_back({rank, companion});
    return list;
  }

  // Carries out `chosen`, victim by victim; what a victim frees beyond it may spare later ones.
  void give_back(const WaitingJob& job, const NodeCount& free, const std::vector<size_t>& order,
                 std::vector<Candidate> chosen) {
    const double idle = total(free);
    for (size_t rank = 0; rank < order.size(); ++rank) {
      Victim& victim = victims_[order[rank]];
      std::set<uint32_t> leave;
      for (const Candidate& candidate : chosen)
        if (candidate.rank == rank) leave.insert(candidate.companion.job_id);
      if (leave.empty()) continue;
      std::vector<CompanionView> rest;
      for (const CompanionView& companion : victim.companions)
        if (leave.count(companion.job_id) == 0) rest.push_back(companion);
      std::set<uint32_t> keep;
      const std::vector<CompanionView> kept = keep_best(*victim.job, rest);
      for (const CompanionView& companion : kept) keep.insert(companion.job_id);
      for (const CompanionView& companion : victim.companions) {
        if (keep.count(companion.job_id) != 0) continue;
        victim.given.push_back(companion);
        freed_[companion.node] += companion.gpus;
      }
      victim.companions = kept;
      victim.beneficiaries.push_back(&job);
      if (victim.inputs.empty())
        victim.inputs = {{"N", needed_gpus(job)},
                         {"n", needed_nodes(job)},
                         {"g", job.gpus_per_node},
                         {"I", idle},
                         {"S", victim.gain}};
      chosen.erase(std::remove_if(chosen.begin(), chosen.end(),
                                  [&](const Candidate& c) { return c.rank == rank; }),
                   chosen.end());
      prune(job, free_for(job), chosen, rank + 1);
    }
  }

  static int total(const NodeCount& count) {
    int sum = 0;
    for (const auto& [node, gpus] : count) sum += gpus;
    return sum;
  }

  Decision shrink_decision(const Victim& victim) const {
    const ElasticJobView& job = *victim.job;
    Decision decision;
    decision.kind = DecisionKind::kShrink;
    decision.job_id = job.job_id;
    decision.for_job = victim.beneficiaries.front()->job_id;
    decision.from_gpus = job.held_gpus;
    int kept = 0, given = 0;
    for (const CompanionView& companion : victim.companions) kept += companion.gpus;
    for (const CompanionView& companion : victim.given) {
      given += companion.gpus;
      decision.give_back.push_back(companion.job_id);
    }
    std::sort(decision.give_back.begin(), decision.give_back.end());
    decision.to_gpus = job.base_gpus + kept;
    decision.rule = "reclaim";
    decision.formula = "I + F >= N";
    decision.inputs = victim.inputs;
    decision.inputs["F"] = given;
    decision.inputs["base"] = job.base_gpus;
    decision.inputs["held"] = job.held_gpus;
    std::string jobs;
    for (const WaitingJob* waiting : victim.beneficiaries)
      jobs += fmt::format("{}{}", jobs.empty() ? "" : ", ", waiting->job_id);
    decision.reason = fmt::format(
        "job{} {} cannot start: {} needed ({}), {} idle for it; job {} runs {:.2f}x as fast as on "
        "its "
        "base and gives back {}, going from {} to {}",
        victim.beneficiaries.size() > 1 ? "s" : "", jobs,
        gpu_count(needed_gpus(*victim.beneficiaries[0])), shape_text(*victim.beneficiaries[0]),
        static_cast<int>(victim.inputs.at("I")), job.job_id, victim.gain, gpu_count(given),
        job.held_gpus, gpu_count(decision.to_gpus));
    return decision;
  }

  static std::string shape_text(const WaitingJob& job) {
    if (job.gpus_per_node > 0)
      return fmt::format("{} x {} per node", needed_nodes(job), job.gpus_per_node);
    return needed_nodes(job) > 1 ? fmt::format("on at least {} nodes", needed_nodes(job))
                                 : std::string("any spread");
  }

  // nullopt when no companion stands where the job could run: there is nothing to decide then.
  std::optional<Decision> abort_decision(const WaitingJob& job, const NodeCount& free,
                                         const std::vector<Candidate>& candidates,
                                         const std::set<std::string>& usable) const {
    int reclaimable = 0, busy = 0;
    for (const Candidate& candidate : candidates) reclaimable += candidate.companion.gpus;
    NodeCount with_busy = free;
    for (const Candidate& candidate : candidates)
      with_busy[candidate.companion.node] += candidate.companion.gpus;
    for (const ElasticJobView& elastic : snapshot_.elastic) {
      if (elastic.steady) continue;
      for (const CompanionView& companion : elastic.companions)
        if (!companion.leaving && usable.count(companion.node) != 0) {
          busy += companion.gpus;
          with_busy[companion.node] += companion.gpus;
        }
    }
    if (reclaimable + busy == 0) return std::nullopt;
    Decision decision;
    decision.kind = DecisionKind::kAbortReclaim;
    decision.for_job = job.job_id;
    decision.formula = "I + E >= N";
    decision.inputs = {{"N", needed_gpus(job)}, {"n", needed_nodes(job)}, {"g", job.gpus_per_node},
                       {"I", total(free)},      {"E", reclaimable},       {"busy", busy}};
    const std::string figures =
        fmt::format("{} needed ({}), {} idle for it and {} expanded ones on nodes it can use",
                    gpu_count(needed_gpus(job)), shape_text(job), total(free), reclaimable);
    if (busy > 0 && fits(job, with_busy)) {
      decision.rule = "switch-under-way";
      decision.reason = fmt::format(
          "job {}: {}; {} more are held by jobs that are just switching, wait for those",
          job.job_id, figures, busy);
    } else {
      decision.rule = "not-enough";
      decision.reason = fmt::format(
          "job {}: {}; that is not enough in the shape it asks for, so nothing is "
          "reclaimed and it queues",
          job.job_id, figures);
    }
    return decision;
  }

  const Snapshot& snapshot_;
  const VictimRule rule_;
  std::vector<Victim> victims_;  // by job id
  NodeCount freed_, taken_;
};

}  // namespace

ReclaimOutcome reclaim(const Snapshot& snapshot, const Parameters& parameters) {
  return Reclaimer(snapshot, parameters.victims).run();
}

}  // namespace flextrain::policy
