// SPDX-License-Identifier: MIT
// What holds for every replay, over random traces, layouts and policies.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "simulator/replay.h"
#include "simulator/scenario.h"

namespace flextrain::simulator {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int whole(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }
  double real(double low, double high) {
    return std::uniform_real_distribution(low, high)(engine_);
  }
  bool chance(double share) { return real(0, 1) < share; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[whole(0, static_cast<int>(list.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

struct Case {
  Trace trace;
  ReplayOptions options;
};

// A few hours of jobs that fill the GPUs about once; every second case on nodes.
Case random_case(uint64_t seed) {
  Random random(seed);
  Case made;
  ReplayOptions& options = made.options;
  const std::vector<std::string> names = scenario_names();
  options.node_gpus = seed % 2 == 0 ? 0 : random.one_of({1, 2, 4, 8});
  options.gpus = 64;
  options.elastic_share = 0.7;
  options.elastic_sizes = {};
  options.mode = random.one_of({ScaleMode::kPipeline, ScaleMode::kDataAndPipeline});
  options.pause = {random.real(0, 60), random.real(0, 300), random.real(0, 600)};
  options = make_scenario(names[static_cast<size_t>(random.whole(0, 7))], options)->options;
  options.oracle = false;
  options.hand_over = random.one_of({0.0, 10.0, 90.0});
  options.tick = random.one_of({10.0, 60.0});
  options.record_placements = options.node_gpus > 0;
  options.policy.require_empty_queue = random.chance(0.5);
  options.policy.victims =
      random.one_of({policy::VictimRule::kMostExpanded, policy::VictimRule::kSmallestSufficient});
  options.policy.max_growth = random.one_of({2.0, 4.0});
  made.trace.users = {"ann", "bob", "cat"};
  made.trace.accounts = {"vision", "text"};
  double time = 0;
  for (int i = 0; i < 150; ++i) {
    time += random.chance(0.2) ? 0 : random.real(0, 400);
    TraceJob job;
    job.id = i;
    job.arrival = time;
    job.gpus = random.chance(0.3) ? random.whole(1, 64) : random.one_of({1, 2, 4, 8, 16, 24});
    job.duration = random.real(1, 4000);
    job.limit = job.duration * random.real(1, 3);
    job.draw = random.real(0, 1);
    job.user = random.whole(0, 2);
    job.account = job.user == 0 ? 0 : 1;
    made.trace.jobs.push_back(job);
  }
  return made;
}

constexpr uint64_t kCases = 200;

// The sizes that job i held, with the times from which on.
std::vector<std::pair<double, int>> sizes_of(const Case& tried, const ReplayResult& result,
                                             size_t i) {
  std::vector<std::pair<double, int>> sizes{{result.jobs[i].start, tried.trace.jobs[i].gpus}};
  for (const SizeChange& change : result.sizes)
    if (change.job == static_cast<int64_t>(i)) sizes.emplace_back(change.time, change.gpus);
  return sizes;
}

TEST(ReplayProperty, EveryJobDoesItsWorkOnEntriesOfItsTable) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE(seed);
    const Case tried = random_case(seed);
    const ReplayResult result = replay(tried.trace, tried.options);
    for (size_t i = 0; i < tried.trace.jobs.size(); ++i) {
      const TraceJob& job = tried.trace.jobs[i];
      const JobOutcome& outcome = result.jobs[i];
      ASSERT_GE(outcome.start, job.arrival);
      if (!outcome.elastic) {
        ASSERT_DOUBLE_EQ(outcome.end, outcome.start + job.duration);
        continue;
      }
      const auto table = scale_table(tried.options.mode, job.gpus);
      const auto sizes = sizes_of(tried, result, i);
      ASSERT_EQ(sizes.size(), static_cast<size_t>(outcome.switches) + 1);
      double done = 0;
      for (size_t k = 0; k < sizes.size(); ++k) {
        const auto [since, gpus] = sizes[k];
        const auto entry = std::find_if(table.begin(), table.end(),
                                        [&](const auto& one) { return one.gpus == gpus; });
        ASSERT_NE(entry, table.end()) << gpus << " GPUs";
        ASSERT_LE(gpus, tried.options.policy.max_growth * job.gpus);
        const double until = k + 1 < sizes.size() ? sizes[k + 1].first : outcome.end;
        const double pause = k > 0 ? tried.options.pause.of(job.gpus) : 0;
        done += std::max(0.0, until - since - pause) * entry->tokens_per_second;
      }
      ASSERT_NEAR(done, job.duration, 1e-6 * job.duration) << "job " << i;
    }
  }
}

// Of what nobody holds, and what was given back only once it was handed over.
TEST(ReplayProperty, NeverMoreGpusThanThereAre) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE(seed);
    const Case tried = random_case(seed);
    const ReplayResult result = replay(tried.trace, tried.options);
    std::map<double, int> change;  // at one time what is freed and what is taken together
    for (size_t i = 0; i < tried.trace.jobs.size(); ++i) {
      int held = 0;
      for (const auto& [time, gpus] : sizes_of(tried, result, i)) {
        const bool back = gpus < held;
        change[time + (back ? tried.options.hand_over : 0)] += gpus - held;
        held = gpus;
      }
      change[result.jobs[i].end] -= held;
    }
    int busy = 0;
    for (const auto& [time, gpus] : change) {
      busy += gpus;
      ASSERT_LE(busy, tried.options.gpus) << "at " << time;
      ASSERT_GE(busy, 0);
    }
    EXPECT_EQ(busy, 0);
  }
}

// Where jobs stand, followed placement by placement.
class Nodes {
 public:
  explicit Nodes(const Case& tried)
      : tried_(tried), per_node_(tried.options.node_gpus), free_(count(), per_node_) {}

  void follow(const Placement& placement) {
    hand_over(placement.time);
    std::map<int, int>& held = held_[placement.job];
    std::map<int, int> now;
    for (const NodeShare& share : placement.nodes) {
      ASSERT_GE(share.node, 0);
      ASSERT_LT(static_cast<size_t>(share.node), count());
      ASSERT_GT(share.gpus, 0);
      ASSERT_TRUE(now.emplace(share.node, share.gpus).second) << "node " << share.node << " twice";
    }
    if (held.empty())
      check_start(placement.job, now);
    else if (!now.empty())
      check_resize(placement.job, held, now);
    for (const auto& [node, gpus] : held) {
      const int back = gpus - (now.count(node) != 0 ? now[node] : 0);
      if (back > 0 && !now.empty() && tried_.options.hand_over > 0)
        coming_.push_back({placement.time + tried_.options.hand_over, node, back});
      else
        free_at(node) += std::max(0, back);
    }
    for (const auto& [node, gpus] : now) {
      free_at(node) -= std::max(0, gpus - (held.count(node) != 0 ? held[node] : 0));
      ASSERT_GE(free_at(node), 0) << "node " << node << " at " << placement.time;
    }
    held = now;
    if (now.empty()) held_.erase(placement.job);
  }

  // Whether a job of `gpus` fits, with all that elastic jobs hold beyond their bases.
  bool fits_at_most(int gpus) const {
    std::vector<int> reach = free_;
    for (const Coming& coming : coming_) reach[static_cast<size_t>(coming.node)] += coming.gpus;
    for (const auto& [job, held] : held_)
      for (const auto& [node, count] : held)
        if (base_.at(job).count(node) == 0) reach[static_cast<size_t>(node)] += count;
    const int whole = gpus / per_node_, rest = gpus % per_node_;
    const auto with = [&](int least) {
      return std::count_if(reach.begin(), reach.end(), [&](int one) { return one >= least; });
    };
    return with(per_node_) >= whole && (rest == 0 || with(rest) > whole);
  }

  void expect_all_free() {
    hand_over(1e18);
    EXPECT_EQ(free_, std::vector<int>(count(), per_node_));
  }

 private:
  struct Coming {
    double time = 0;
    int node = 0, gpus = 0;
  };
  size_t count() const { return static_cast<size_t>(tried_.options.gpus / per_node_); }
  int& free_at(int node) { return free_[static_cast<size_t>(node)]; }

  void hand_over(double now) {
    for (const Coming& coming : coming_)
      if (coming.time <= now) free_at(coming.node) += coming.gpus;
    std::erase_if(coming_, [&](const Coming& coming) { return coming.time <= now; });
  }

  // Whole nodes, and the rest on the fullest that has room.
  void check_start(int64_t job, const std::map<int, int>& now) {
    const int gpus = tried_.trace.jobs[static_cast<size_t>(job)].gpus;
    int whole = 0, sum = 0;
    for (const auto& [node, count] : now) {
      sum += count;
      whole += count == per_node_ ? 1 : 0;
      if (count == per_node_) continue;
      ASSERT_EQ(count, gpus % per_node_);
      for (size_t other = 0; other < free_.size(); ++other) {
        const bool had_room = now.count(static_cast<int>(other)) == 0 && free_[other] >= count;
        ASSERT_FALSE(had_room && free_[other] < free_at(node)) << "node " << other << " is fuller";
      }
    }
    ASSERT_EQ(sum, gpus);
    ASSERT_EQ(whole, gpus / per_node_);
    base_[job] = now;
  }

  // The base stays; companions stand on other nodes and come and go whole.
  void check_resize(int64_t job, const std::map<int, int>& held, const std::map<int, int>& now) {
    for (const auto& [node, gpus] : base_.at(job)) {
      ASSERT_EQ(now.count(node), 1u);
      ASSERT_EQ(now.at(node), gpus);
    }
    bool more = false, fewer = false;
    for (const auto& [node, gpus] : now) {
      if (held.count(node) != 0) {
        ASSERT_EQ(held.at(node), gpus);
      } else {
        more = true;
      }
    }
    for (const auto& [node, gpus] : held) fewer = fewer || now.count(node) == 0;
    ASSERT_NE(more, fewer);
  }

  const Case& tried_;
  const int per_node_;
  std::vector<int> free_;
  std::vector<Coming> coming_;
  std::map<int64_t, std::map<int, int>> held_, base_;  // job → node → GPUs
};

// Growth is the last thing that happens at an instant: what waits then stays without.
std::vector<size_t> waiting_at(const Case& tried, const ReplayResult& result, double time) {
  std::vector<size_t> waiting;
  for (size_t i = 0; i < tried.trace.jobs.size() && tried.trace.jobs[i].arrival <= time; ++i)
    if (result.jobs[i].start > time) waiting.push_back(i);
  return waiting;
}

TEST(ReplayProperty, NodesAreConservedAndNoGrowthTakesWhatAWaitingJobCouldStartOn) {
  int growths_beside_a_queue = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE(seed);
    const Case tried = random_case(seed);
    if (tried.options.node_gpus == 0) continue;
    const ReplayResult result = replay(tried.trace, tried.options);
    Nodes nodes(tried);
    std::map<int64_t, int> sizes;
    for (const Placement& placement : result.placements) {
      int size = 0;
      for (const NodeShare& share : placement.nodes) size += share.gpus;
      int& before = sizes[placement.job];
      if (before > 0 && size > before) {
        const auto waiting = waiting_at(tried, result, placement.time);
        if (tried.options.policy.require_empty_queue) {
          ASSERT_TRUE(waiting.empty());
        } else if (!waiting.empty()) {
          ++growths_beside_a_queue;
          ASSERT_FALSE(nodes.fits_at_most(tried.trace.jobs[waiting.front()].gpus));
        }
      }
      before = size;
      nodes.follow(placement);
      if (HasFatalFailure()) return;
    }
    nodes.expect_all_free();
  }
  EXPECT_GT(growths_beside_a_queue, 100) << "the cases say nothing without the queue rule";
}

TEST(ReplayProperty, NoGrowthStarvesTheHeadOfTheQueueInOnePool) {
  int growths_beside_a_queue = 0;
  for (uint64_t seed = 2; seed <= kCases; seed += 2) {
    SCOPED_TRACE(seed);
    const Case tried = random_case(seed);
    const ReplayResult result = replay(tried.trace, tried.options);
    std::map<int64_t, int> sizes;
    for (const SizeChange& change : result.sizes) {
      const auto i = static_cast<size_t>(change.job);
      const int before = sizes.emplace(change.job, tried.trace.jobs[i].gpus).first->second;
      sizes[change.job] = change.gpus;
      if (change.gpus < before) continue;
      const auto waiting = waiting_at(tried, result, change.time);
      if (waiting.empty()) continue;
      ASSERT_FALSE(tried.options.policy.require_empty_queue);
      ++growths_beside_a_queue;
      // What is not held by a base would not do for it.
      int bases = 0;
      for (size_t k = 0; k < tried.trace.jobs.size(); ++k)
        if (result.jobs[k].start <= change.time && result.jobs[k].end > change.time)
          bases += tried.trace.jobs[k].gpus;
      ASSERT_GT(tried.trace.jobs[waiting.front()].gpus, tried.options.gpus - bases);
    }
  }
  EXPECT_GT(growths_beside_a_queue, 100);
}

// One limit of flextrain.conf at a time. `holds` is asked at every growth; returns how many growths
// there were.
struct Growth {
  const Case& tried;
  double time = 0;
  size_t job = 0;
  std::vector<int> expanded;                  // GPUs beyond the base, by job, after it
  int bases = 0;                              // GPUs of running jobs' bases
  std::vector<std::vector<double>> switches;  // by job: when the ones before it were done
};
template <class Limit, class Holds>
int64_t growths_within(const Limit& limit, const Holds& holds) {
  int64_t growths = 0;
  for (uint64_t seed = 1; seed <= kCases / 4; ++seed) {
    SCOPED_TRACE(seed);
    Case tried = random_case(seed);
    limit(tried.options.policy);
    const ReplayResult result = replay(tried.trace, tried.options);
    const auto& jobs = tried.trace.jobs;
    Growth growth{tried, 0, 0, std::vector<int>(jobs.size(), 0), 0, {}};
    growth.switches.resize(jobs.size());
    for (const SizeChange& change : result.sizes) {
      const auto i = static_cast<size_t>(change.job);
      int& expanded = growth.expanded[i];
      const bool grows = change.gpus - jobs[i].gpus > expanded;
      expanded = change.gpus - jobs[i].gpus;
      growth.time = change.time;
      growth.job = i;
      growth.bases = 0;
      for (size_t k = 0; k < jobs.size(); ++k) {
        if (result.jobs[k].end <= change.time) growth.expanded[k] = 0;
        if (result.jobs[k].start <= change.time && result.jobs[k].end > change.time)
          growth.bases += jobs[k].gpus;
      }
      if (grows) {
        ++growths;
        if (!holds(growth)) {
          ADD_FAILURE() << "job " << i << " grows at " << change.time;
          return growths;
        }
      }
      auto& done = growth.switches[i];
      if (!done.empty() && done.back() > change.time) done.pop_back();
      done.push_back(change.time + tried.options.pause.of(jobs[i].gpus));
    }
  }
  return growths;
}

int expanded_of(const Growth& growth, int TraceJob::*owner) {
  const auto& jobs = growth.tried.trace.jobs;
  int sum = 0;
  for (size_t k = 0; k < jobs.size(); ++k)
    if (jobs[k].*owner == jobs[growth.job].*owner) sum += growth.expanded[k];
  return sum;
}

TEST(ReplayProperty, LimitsOfTheConfigurationHold) {
  const auto always = [](const Growth&) { return true; };
  const int64_t unlimited = growths_within([](policy::Parameters&) {}, always);
  EXPECT_GT(unlimited, 500);
  const auto check = [&](const char* what, auto limit, auto holds) {
    SCOPED_TRACE(what);
    const int64_t growths = growths_within(limit, holds);
    EXPECT_GT(growths, 50);
    EXPECT_LT(growths, unlimited) << "the limit bounds nothing";
  };
  check(
      "UserMaxExpandedGPUs", [](policy::Parameters& p) { p.user_max_expanded = 8; },
      [](const Growth& growth) { return expanded_of(growth, &TraceJob::user) <= 8; });
  check(
      "AccountMaxExpandedGPUs", [](policy::Parameters& p) { p.account_max_expanded = 10; },
      [](const Growth& growth) { return expanded_of(growth, &TraceJob::account) <= 10; });
  check(
      "IdleReserve", [](policy::Parameters& p) { p.idle_reserve = 0.5; },
      [](const Growth& growth) {
        int all = 0;
        for (const int expanded : growth.expanded) all += expanded;
        return all <= 0.5 * (growth.tried.options.gpus - growth.bases);
      });
  check(
      "QuietHours",
      [](policy::Parameters& p) { p.quiet_hours = *policy::QuietHours::parse("Mon 01:00-02:30"); },
      [](const Growth& growth) { return growth.time < 3600 || growth.time >= 2.5 * 3600; });
  check(
      "CooldownSeconds", [](policy::Parameters& p) { p.cooldown_seconds = 1200; },
      [](const Growth& growth) {
        const auto& done = growth.switches[growth.job];
        return done.empty() || growth.time - done.back() >= 1200;
      });
  check(
      "MaxScalingsPerHour", [](policy::Parameters& p) { p.max_scalings_per_hour = 1; },
      [](const Growth& growth) {
        const auto& done = growth.switches[growth.job];
        return done.empty() || done.back() <= growth.time - 3600;
      });
}

TEST(ReplayProperty, NodesOfOneGpuAreOnePool) {
  int64_t shrinks = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE(seed);
    Case tried = random_case(seed);
    tried.options.node_gpus = 0;
    const ReplayResult pool = replay(tried.trace, tried.options);
    tried.options.node_gpus = 1;
    const ReplayResult nodes = replay(tried.trace, tried.options);
    for (size_t i = 0; i < pool.jobs.size(); ++i) {
      ASSERT_EQ(pool.jobs[i].start, nodes.jobs[i].start) << "job " << i;
      ASSERT_EQ(pool.jobs[i].end, nodes.jobs[i].end) << "job " << i;
    }
    ASSERT_EQ(pool.growths, nodes.growths);
    ASSERT_EQ(pool.shrinks, nodes.shrinks);
    ASSERT_EQ(nodes.stranded_gpu_seconds, 0);
    ASSERT_EQ(nodes.fragmented_wait_seconds, 0);
    shrinks += pool.shrinks;
  }
  EXPECT_GT(shrinks, 1000);
}

struct Asked {
  double arrival, duration;
  int gpus;
};
ReplayResult replay_rigid(const std::vector<Asked>& jobs, int nodes, int node_gpus) {
  Trace trace;
  for (const Asked& asked : jobs) {
    TraceJob job;
    job.id = static_cast<int64_t>(trace.jobs.size());
    job.arrival = asked.arrival;
    job.duration = job.limit = asked.duration;
    job.gpus = asked.gpus;
    trace.jobs.push_back(job);
  }
  ReplayOptions options;
  options.gpus = nodes * node_gpus;
  options.node_gpus = node_gpus;
  options.elastic = false;
  return replay(trace, options);
}

// Two jobs of 6 leave 2 + 2 GPUs on two nodes of 8: one more of 4 fits into a pool, not there.
TEST(Nodes, FragmentsAreNoRoom) {
  const std::vector<Asked> jobs{{0, 1000, 6}, {0, 2000, 6}, {10, 500, 4}};
  EXPECT_EQ(replay_rigid(jobs, 16, 1).jobs[2].start, 10);
  const ReplayResult result = replay_rigid(jobs, 2, 8);
  EXPECT_EQ(result.jobs[2].start, 1000);
  // Until the last arrival, 4 of the 4 idle GPUs are on partly used nodes.
  EXPECT_DOUBLE_EQ(result.stranded_gpu_seconds, 40);
}

// On four nodes 2, 3 and 2 GPUs are free beside jobs of 6, 5 and 6. The head wants two nodes, the
// full one and that with 3 free, from 1,000 s on. There are GPUs to spare then, but a job of 3 that
// runs on fits on no other node; one of 2 does.
TEST(Nodes, BackfillLeavesTheHeadItsNodes) {
  const ReplayResult result = replay_rigid({{0, 1000, 8},
                                            {0, 5000, 6},
                                            {0, 900, 5},
                                            {0, 5000, 6},
                                            {10, 700, 16},
                                            {20, 3000, 3},
                                            {20, 3000, 2}},
                                           4, 8);
  EXPECT_EQ(result.jobs[4].start, 1000);
  EXPECT_EQ(result.jobs[5].start, 1700);
  EXPECT_LT(result.jobs[6].start, 100);
}

}  // namespace
}  // namespace flextrain::simulator
