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
#include <climits>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "policy/selection.h"
#include "policy/text.h"
#include "policy/throughput.h"
#include "policy/victims.h"

namespace flextrain::policy {
namespace {

int needed_nodes(const WaitingJob& job) {
  const int by_gpus =
      job.gpus_per_node > 0 ? (job.gpus + job.gpus_per_node - 1) / job.gpus_per_node : 1;
  return std::max({job.nodes, by_gpus, 1});
}

int needed_gpus(const WaitingJob& job) {
  return job.gpus_per_node > 0 ? needed_nodes(job) * job.gpus_per_node : job.gpus;
}

// GPUs per node that one waiting job could use, and whether it fits there.
class Room {
 public:
  Room(const WaitingJob& job, std::vector<int> free) : job_(&job), free_(std::move(free)) {
    for (const int count : free_) {
      total_ += count;
      count_node(count, 1);
    }
  }

  void add(int node, int gpus) {
    int& count = free_[static_cast<size_t>(node)];
    count_node(count, -1);
    count += gpus;
    total_ += gpus;
    count_node(count, 1);
  }
  // The same places for a job that wants as many GPUs per node.
  Room of(const WaitingJob& job) const {
    Room room = *this;
    room.job_ = &job;
    return room;
  }
  bool fits() const { return fits(*job_, nodes_, gpus_); }
  // With `nodes` that have enough GPUs per node for the job, and so many GPUs there.
  static bool fits(const WaitingJob& job, int nodes, int gpus) {
    return nodes >= needed_nodes(job) && (job.gpus_per_node > 0 || gpus >= job.gpus);
  }
  int total() const { return total_; }
  int nodes() const { return nodes_; }
  int gpus() const { return gpus_; }

  // What the job, which fits, will occupy, added to `taken`: fully used nodes first. Which nodes
  // Slurm picks is its own affair; this is one possible choice.
  void occupy(std::vector<int>& taken) const {
    std::vector<std::pair<int, int>> order;  // GPUs, node
    for (size_t node = 0; node < free_.size(); ++node)
      if (free_[node] >= least()) order.emplace_back(free_[node], static_cast<int>(node));
    const auto first = [&](size_t count, auto before) {
      const auto middle = order.begin() + static_cast<ptrdiff_t>(std::min(count, order.size()));
      std::partial_sort(order.begin(), middle, order.end(), before);
      order.erase(middle, order.end());
    };
    if (job_->gpus_per_node > 0) {  // the tightest nodes
      first(static_cast<size_t>(needed_nodes(*job_)), std::less<>());
      for (const auto& [count, node] : order)
        taken[static_cast<size_t>(node)] += job_->gpus_per_node;
      return;
    }
    // The fewest nodes, but as many as it asks for.
    first(static_cast<size_t>(std::max(job_->gpus, needed_nodes(*job_))), std::greater<>());
    int rest = job_->gpus, nodes_left = needed_nodes(*job_);
    for (const auto& [count, node] : order) {
      if (rest <= 0) break;
      const int take = std::min({count, std::max(1, rest - (nodes_left - 1)), rest});
      taken[static_cast<size_t>(node)] += take;
      rest -= take;
      nodes_left = std::max(1, nodes_left - 1);
    }
  }

 private:
  int least() const { return std::max(job_->gpus_per_node, 1); }
  void count_node(int count, int sign) {
    if (count < least()) return;
    nodes_ += sign;
    gpus_ += sign * count;
  }

  const WaitingJob* job_;
  std::vector<int> free_;  // by node
  int total_ = 0;
  int nodes_ = 0, gpus_ = 0;  // nodes with enough for the job, and their GPUs
};

struct Held {  // a companion
  CompanionView view;
  int node = 0;
};

struct Victim {
  const ElasticJobView* job = nullptr;
  double gain = 1;
  std::vector<Held> companions;  // still held
  std::vector<CompanionView> given;
  std::vector<const WaitingJob*> beneficiaries;
  std::map<std::string, double> inputs;  // of the first reclaim
};

struct Candidate {  // a companion that could go back for the job at hand
  size_t rank = 0;  // of its victim in the order in which they are asked
  const Held* companion = nullptr;
};

class Reclaimer {
 public:
  Reclaimer(const Snapshot& snapshot, const Parameters& parameters, const NodeIndex& nodes,
            const Probes& probes)
      : snapshot_(snapshot),
        depth_(waiting_depth(snapshot, parameters)),
        parameters_(parameters),
        nodes_(nodes),
        probes_(probes),
        freed_(nodes.size(), 0),
        taken_(nodes.size(), 0) {
    for (const ElasticJobView& job : snapshot.elastic) {
      std::vector<Held> held;
      for (const CompanionView& companion : job.companions) {
        const int node = nodes.number(companion.node);
        if (companion.leaving)
          freed_[static_cast<size_t>(node)] += companion.gpus;
        else if (job.steady)
          held.push_back({companion, node});
        else
          switching_.push_back({companion, node});
      }
      if (!held.empty()) victims_.push_back({&job, gain_over_base(job), held, {}, {}, {}});
    }
    std::sort(victims_.begin(), victims_.end(),
              [](const Victim& a, const Victim& b) { return a.job->job_id < b.job->job_id; });
  }

  ReclaimOutcome run() {
    ReclaimOutcome outcome;
    for (size_t i = 0; i < depth_; ++i) serve(snapshot_.waiting[i], outcome.decisions);
    std::vector<Decision> shrinks;
    for (const Victim& victim : victims_)
      if (!victim.given.empty()) shrinks.push_back(shrink_decision(victim));
    outcome.decisions.insert(outcome.decisions.begin(), shrinks.begin(), shrinks.end());
    outcome.taken = taken_;
    return outcome;
  }

 private:
  // The nodes of all jobs with the same two lists.
  struct Places {
    std::vector<int> idle;     // by node; kNowhere where the job cannot run
    std::vector<char> usable;  // companions there count for it
  };
  static constexpr int kNowhere = INT_MIN / 2;

  const Places& places_of(const WaitingJob& job) const {
    const auto [at, inserted] =
        places_.try_emplace({job.offers.identity(), job.usable_nodes.identity()});
    Places& places = at->second;
    if (!inserted) return places;
    places.idle.assign(nodes_.size(), kNowhere);
    places.usable.assign(nodes_.size(), 0);
    for (const int node : nodes_.nodes(job.usable_nodes)) {
      places.idle[static_cast<size_t>(node)] = 0;
      places.usable[static_cast<size_t>(node)] = 1;
    }
    for (const IndexedOffer& offer : nodes_.offers(job.offers)) {
      int& idle = places.idle[static_cast<size_t>(offer.node)];
      idle = std::max(idle, offer.gpus);
    }
    return places;
  }

  // Free for `job`: its idle offers and what is coming back on nodes it can use, less what earlier
  // jobs take.
  Room free_for(const WaitingJob& job) const {
    std::vector<int> free = places_of(job).idle;
    for (size_t node = 0; node < free.size(); ++node)
      free[node] = std::max(0, free[node] + freed_[node] - taken_[node]);
    return {job, std::move(free)};
  }

  // Removes what `job` does not need from the victims of rank `first_rank` and later: the last
  // victim's companions first, of one victim the largest first. `room` has all of `chosen`.
  static void prune(Room& room, std::vector<Candidate>& chosen, size_t first_rank) {
    std::vector<Candidate> order = chosen;
    std::sort(order.begin(), order.end(), [](const Candidate& a, const Candidate& b) {
      const CompanionView &left = a.companion->view, &right = b.companion->view;
      if (a.rank != b.rank) return a.rank > b.rank;
      if (left.gpus != right.gpus) return left.gpus > right.gpus;
      return left.job_id > right.job_id;
    });
    for (const Candidate& candidate : order) {
      if (candidate.rank < first_rank) continue;
      const auto& [view, node] = *candidate.companion;
      room.add(node, -view.gpus);
      if (room.fits()) {
        std::erase_if(chosen, [&](const Candidate& other) {
          return other.companion->view.job_id == candidate.companion->view.job_id;
        });
      } else {
        room.add(node, view.gpus);
      }
    }
  }

  void serve(const WaitingJob& job, std::vector<Decision>& decisions) {
    const Ceiling& most = ceiling_of(job);
    if (!Room::fits(job, most.nodes, most.gpus)) {
      if (probes_.reclaim) show_victims(job);
      return refuse(job, most, decisions);
    }
    Room room = most.free->of(job);
    if (room.fits()) {
      room.occupy(taken_);
      return ceilings_.clear();
    }
    if (probes_.reclaim) show_victims(job);
    const std::vector<char>& usable = places_of(job).usable;
    const int idle = room.total();
    std::vector<VictimFacts> facts = victim_facts(usable);
    const int need = std::max(1, needed_gpus(job) - idle);
    const std::vector<size_t> order = victim_order(parameters_.victims, facts, need);
    std::vector<Candidate> chosen = all_candidates(order, usable);
    choose(room, facts, order, need, chosen);
    prune(room, chosen, 0);
    give_back(job, idle, order, chosen);
    free_for(job).occupy(taken_);
    ceilings_.clear();
  }

  void show_victims(const WaitingJob& job) const {
    std::vector<VictimFacts> facts = victim_facts(places_of(job).usable);
    const int need = std::max(1, needed_gpus(job) - free_for(job).total());
    const std::vector<size_t> order = victim_order(parameters_.victims, facts, need);
    probes_.reclaim(job, facts, order);
  }

  // What all victims together could free for every job that can use the same nodes and wants as
  // many GPUs of each.
  struct Ceiling {
    int idle = 0, reclaimable = 0, busy = 0;  // GPUs; busy: of jobs in a switch
    int nodes = 0, gpus = 0;                  // Room::fits(), without the busy ones
    int nodes_with_busy = 0, gpus_with_busy = 0;
    std::optional<Room> free;  // as free_for() says
  };
  using Shape = std::tuple<const void*, const void*, int>;

  // Until something is taken or freed.
  const Ceiling& ceiling_of(const WaitingJob& job) {
    const Shape shape{job.offers.identity(), job.usable_nodes.identity(), job.gpus_per_node};
    const auto [at, inserted] = ceilings_.try_emplace(shape);
    Ceiling& most = at->second;
    if (!inserted) return most;
    Room room = free_for(job);
    most.free = room;
    most.idle = room.total();
    const std::vector<char>& usable = places_of(job).usable;
    const auto add = [&](const Held& held, int& sum) {
      if (usable[static_cast<size_t>(held.node)] == 0) return;
      room.add(held.node, held.view.gpus);
      sum += held.view.gpus;
    };
    for (const Victim& victim : victims_)
      for (const Held& held : victim.companions) add(held, most.reclaimable);
    most.nodes = room.nodes();
    most.gpus = room.gpus();
    for (const Held& held : switching_) add(held, most.busy);
    most.nodes_with_busy = room.nodes();
    most.gpus_with_busy = room.gpus();
    return most;
  }

  static void give(Room& room, const Candidate& candidate) {
    room.add(candidate.companion->node, candidate.companion->view.gpus);
  }

  // Of `chosen`, which all together suffice, what suffices in the order of the rule; `room` gets
  // it.
  void choose(Room& room, const std::vector<VictimFacts>& facts, const std::vector<size_t>& order,
              int need, std::vector<Candidate>& chosen) const {
    // `chosen` is sorted by rank: the candidates of each are together.
    std::vector<size_t> begin(order.size() + 1, chosen.size());
    for (size_t i = chosen.size(); i-- > 0;) begin[chosen[i].rank] = i;
    for (size_t rank = order.size(); rank-- > 0;)
      begin[rank] = std::min(begin[rank], begin[rank + 1]);
    if (parameters_.victims == VictimRule::kSmallestSufficient)  // one alone
      for (size_t rank = 0; rank < order.size(); ++rank) {
        if (facts[order[rank]].expanded < need || facts[order[rank]].spared) continue;
        for (size_t i = begin[rank]; i < begin[rank + 1]; ++i) give(room, chosen[i]);
        if (room.fits()) {
          chosen = {chosen.begin() + static_cast<ptrdiff_t>(begin[rank]),
                    chosen.begin() + static_cast<ptrdiff_t>(begin[rank + 1])};
          return;
        }
        for (size_t i = begin[rank]; i < begin[rank + 1]; ++i)
          room.add(chosen[i].companion->node, -chosen[i].companion->view.gpus);
      }
    size_t rank = 0;
    for (; rank < order.size() && !room.fits(); ++rank)
      for (size_t i = begin[rank]; i < begin[rank + 1]; ++i) give(room, chosen[i]);
    chosen.resize(begin[rank]);
  }

  std::vector<VictimFacts> victim_facts(const std::vector<char>& usable) const {
    std::vector<VictimFacts> facts;
    for (const Victim& victim : victims_) {
      int expanded = 0;
      for (const Held& held : victim.companions)
        if (usable[static_cast<size_t>(held.node)] != 0) expanded += held.view.gpus;
      facts.push_back({victim.job->job_id, expanded,
                       is_spared(parameters_, victim.job->remaining_seconds, victim.job->saving)});
    }
    return facts;
  }

  std::vector<Candidate> all_candidates(const std::vector<size_t>& order,
                                        const std::vector<char>& usable) const {
    std::vector<Candidate> list;
    for (size_t rank = 0; rank < order.size(); ++rank)
      for (const Held& held : victims_[order[rank]].companions)
        if (usable[static_cast<size_t>(held.node)] != 0) list.push_back({rank, &held});
    return list;
  }

  // Carries out `chosen`, victim by victim; what a victim frees beyond it may spare later ones.
  void give_back(const WaitingJob& job, int idle, const std::vector<size_t>& order,
                 std::vector<Candidate> chosen) {
    for (size_t rank = 0; rank < order.size() && !chosen.empty(); ++rank) {
      Victim& victim = victims_[order[rank]];
      std::set<uint32_t> leave;
      for (const Candidate& candidate : chosen)
        if (candidate.rank == rank) leave.insert(candidate.companion->view.job_id);
      if (leave.empty()) continue;
      std::vector<CompanionView> rest;
      for (const Held& held : victim.companions)
        if (leave.count(held.view.job_id) == 0) rest.push_back(held.view);
      std::set<uint32_t> keep;
      for (const CompanionView& companion : keep_best(*victim.job, rest))
        keep.insert(companion.job_id);
      std::vector<Held> kept;
      for (const Held& held : victim.companions) {
        if (keep.count(held.view.job_id) != 0) {
          kept.push_back(held);
          continue;
        }
        victim.given.push_back(held.view);
        freed_[static_cast<size_t>(held.node)] += held.view.gpus;
      }
      victim.companions = std::move(kept);
      victim.beneficiaries.push_back(&job);
      if (victim.inputs.empty())
        victim.inputs = {{"N", needed_gpus(job)},
                         {"n", needed_nodes(job)},
                         {"g", job.gpus_per_node},
                         {"I", idle},
                         {"S", victim.gain}};
      std::erase_if(chosen, [&](const Candidate& c) { return c.rank == rank; });
      if (chosen.empty()) return;
      Room room = free_for(job);
      for (const Candidate& candidate : chosen) give(room, candidate);
      prune(room, chosen, rank + 1);
    }
  }

  Decision shrink_decision(const Victim& victim) const {
    const ElasticJobView& job = *victim.job;
    Decision decision;
    decision.kind = DecisionKind::kShrink;
    decision.job_id = job.job_id;
    decision.for_job = victim.beneficiaries.front()->job_id;
    decision.from_gpus = job.held_gpus;
    int kept = 0, given = 0;
    for (const Held& held : victim.companions) kept += held.view.gpus;
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

  static void refuse(const WaitingJob& job, const Ceiling& most, std::vector<Decision>& decisions) {
    // No companion stands where the job could run: there is nothing to decide.
    if (most.reclaimable + most.busy == 0) return;
    Decision decision;
    decision.kind = DecisionKind::kAbortReclaim;
    decision.for_job = job.job_id;
    decision.formula = "I + E >= N";
    decision.inputs = {{"N", needed_gpus(job)}, {"n", needed_nodes(job)}, {"g", job.gpus_per_node},
                       {"I", most.idle},        {"E", most.reclaimable},  {"busy", most.busy}};
    const std::string figures =
        fmt::format("{} needed ({}), {} idle for it and {} expanded ones on nodes it can use",
                    gpu_count(needed_gpus(job)), shape_text(job), most.idle, most.reclaimable);
    if (most.busy > 0 && Room::fits(job, most.nodes_with_busy, most.gpus_with_busy)) {
      decision.rule = "switch-under-way";
      decision.reason = fmt::format(
          "job {}: {}; {} more are held by jobs that are just switching, wait for those",
          job.job_id, figures, most.busy);
    } else {
      decision.rule = "not-enough";
      decision.reason = fmt::format(
          "job {}: {}; that is not enough in the shape it asks for, so nothing is "
          "reclaimed and it queues",
          job.job_id, figures);
    }
    decisions.push_back(std::move(decision));
  }

  const Snapshot& snapshot_;
  const size_t depth_;
  const Parameters& parameters_;
  const NodeIndex& nodes_;
  const Probes& probes_;
  std::vector<Victim> victims_;     // by job id
  std::vector<Held> switching_;     // companions of jobs in a switch
  std::vector<int> freed_, taken_;  // by node
  std::map<Shape, Ceiling> ceilings_;
  mutable std::map<std::pair<const void*, const void*>, Places> places_;
};

}  // namespace

ReclaimOutcome reclaim(const Snapshot& snapshot, const Parameters& parameters,
                       const NodeIndex& nodes, const Probes& probes) {
  return Reclaimer(snapshot, parameters, nodes, probes).run();
}

}  // namespace flextrain::policy
