// SPDX-License-Identifier: MIT
// Start by start and end by end what another simulation of the same rules computed
// (data/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <sstream>

#include "base/file.h"
#include "simulator/measures.h"
#include "simulator/read_trace.h"
#include "simulator/replay.h"

namespace flextrain::simulator {
namespace {

const Trace& golden_trace() {
  static const Trace trace = [] {
    const std::string path = TEST_DATA "/trace.csv";
    return read_trace(*read_file(path), path, {})->trace;
  }();
  return trace;
}

ReplayOptions paper_options() {
  ReplayOptions options;
  options.gpus = 320;
  options.elastic_share = 0.6;
  options.policy.gate = policy::Gate::kPrinted;
  options.policy.forecast = policy::ForecastKind::kTrailing;
  options.policy.arrival_min_gpus = 32;
  options.policy.victims = policy::VictimRule::kMostExpanded;
  options.policy.remaining_time_guard = false;
  options.policy.spare_ending_seconds = 0;
  return options;
}

ReplayOptions thinned_options(policy::Gate gate) {
  ReplayOptions options = paper_options();
  options.policy.gate = gate;
  options.policy.forecast = policy::ForecastKind::kThinned;
  options.policy.victims = policy::VictimRule::kSmallestSufficient;
  options.policy.remaining_time_guard = true;
  return options;
}

void expect_same(ReplayOptions options, const std::string& file, int node_gpus) {
  SCOPED_TRACE(node_gpus == 0 ? "one pool" : "nodes of one GPU");
  options.node_gpus = node_gpus;
  const ReplayResult result = replay(golden_trace(), options);
  std::istringstream log(*read_file(TEST_DATA "/" + file));
  std::string line;
  std::getline(log, line);
  size_t at = 0;
  int different = 0;
  for (; std::getline(log, line); ++at) {
    long id = 0;
    double start = 0, end = 0;
    int elastic = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%ld,%lf,%lf,%d", &id, &start, &end, &elastic), 4) << line;
    ASSERT_LT(at, result.jobs.size());
    ASSERT_EQ(golden_trace().jobs[at].id, id);
    const JobOutcome& job = result.jobs[at];
    EXPECT_EQ(job.elastic, elastic == 1) << "job " << id;
    // The log is rounded to milliseconds.
    if (std::abs(job.start - start) > 0.0011 || std::abs(job.end - end) > 0.0011)
      if (++different <= 5)
        ADD_FAILURE() << file << " job " << id << ": " << job.start << "-" << job.end
                      << ", expected " << start << "-" << end;
  }
  EXPECT_EQ(at, result.jobs.size());
  EXPECT_EQ(different, 0) << file;
}

// Nodes of one GPU are one pool; their growth and reclaim are the live policy's.
void expect_same(const ReplayOptions& options, const std::string& file) {
  for (const int node_gpus : {0, 1}) expect_same(options, file, node_gpus);
}

TEST(Golden, Rigid) {
  ReplayOptions options = paper_options();
  options.elastic = false;
  expect_same(options, "rigid.csv");
}

TEST(Golden, PrintedGate) { expect_same(paper_options(), "paper.csv"); }

TEST(Golden, NoGate) {
  ReplayOptions options = paper_options();
  options.policy.gate = policy::Gate::kNone;
  expect_same(options, "paper.csv");
}

TEST(Golden, PipelineTable) {
  ReplayOptions options = paper_options();
  options.mode = ScaleMode::kPipeline;
  expect_same(options, "pp.csv");
}

TEST(Golden, BreakEven) { expect_same(thinned_options(policy::Gate::kBreakEven), "even.csv"); }

TEST(Golden, NetBenefitWhileJobsWait) {
  ReplayOptions options = thinned_options(policy::Gate::kNetBenefit);
  options.policy.require_empty_queue = false;
  expect_same(options, "net.csv");
}

// The other simulation's own measures of the same runs.
TEST(Golden, Measures) {
  ReplayOptions rigid = paper_options();
  rigid.elastic = false;
  const ReplayResult base = replay(golden_trace(), rigid);
  const ReplayOptions options = thinned_options(policy::Gate::kBreakEven);
  const ReplayResult run = replay(golden_trace(), options);
  const Measures m = measure(golden_trace(), options, run, base, 0);
  EXPECT_EQ(m.elastic_jobs, 200);
  EXPECT_NEAR(m.njct, 0.5424, 5e-5);
  EXPECT_NEAR(m.nrun, 0.5445, 5e-5);
  EXPECT_NEAR(m.slower, 0.030, 1e-9);
  EXPECT_EQ(m.growths, 146);
  EXPECT_EQ(m.shrinks, 136);
  EXPECT_NEAR(m.pause_gpu_hours, 1838, 0.5);
  EXPECT_NEAR(m.queue_mean, 20.6, 0.05);
  EXPECT_NEAR(m.base_queue_mean, 32.9, 0.05);
  EXPECT_NEAR(m.queue_over_60, 0.02409, 5e-6);
  EXPECT_NEAR(m.base_queue_over_60, 0.04245, 5e-6);
  EXPECT_NEAR(measure(golden_trace(), rigid, base, base, 0).utilisation, 0.4916, 5e-4)
      << "summed up by hand from rigid.csv";
  EXPECT_GT(m.utilisation, 0.5);
}

// GPUs are conserved and sizes stay within [base, 4x base] whatever the policy; a second run is the
// same to the bit.
TEST(Replay, ConservesGpusAndRepeatsItself) {
  for (const bool queue_rule : {true, false})
    for (const double hand_over : {0.0, 10.0})
      for (const policy::Gate gate : {policy::Gate::kNone, policy::Gate::kNetBenefit}) {
        ReplayOptions options = thinned_options(gate);
        options.policy.require_empty_queue = queue_rule;
        options.hand_over = hand_over;
        const ReplayResult result = replay(golden_trace(), options);
        const ReplayResult again = replay(golden_trace(), options);
        // Events in order of time; at one time those that free come first.
        struct Change {
          double time;
          int gpus;
          bool operator<(const Change& other) const {
            return time != other.time ? time < other.time : gpus < other.gpus;
          }
        };
        std::vector<Change> changes;
        std::vector<int> held(result.jobs.size(), 0);
        for (size_t i = 0; i < result.jobs.size(); ++i) {
          const JobOutcome& job = result.jobs[i];
          ASSERT_EQ(job.start, again.jobs[i].start);
          ASSERT_EQ(job.end, again.jobs[i].end);
          ASSERT_GE(job.start, golden_trace().jobs[i].arrival);
          ASSERT_GT(job.end, job.start);
          held[i] = golden_trace().jobs[i].gpus;
          changes.push_back({job.start, held[i]});
        }
        for (const SizeChange& change : result.sizes) {
          const auto i = static_cast<size_t>(change.job);
          const int base = golden_trace().jobs[i].gpus;
          ASSERT_GE(change.gpus, base);
          ASSERT_LE(change.gpus, 4 * base);
          ASSERT_GE(change.time, result.jobs[i].start);
          ASSERT_LE(change.time, result.jobs[i].end);
          changes.push_back({change.time, change.gpus - held[i]});
          held[i] = change.gpus;
        }
        for (size_t i = 0; i < result.jobs.size(); ++i)
          changes.push_back({result.jobs[i].end, -held[i]});
        std::sort(changes.begin(), changes.end());
        int busy = 0;
        for (const Change& change : changes) {
          busy += change.gpus;
          ASSERT_LE(busy, options.gpus) << "at " << change.time;
          ASSERT_GE(busy, 0);
        }
        EXPECT_EQ(busy, 0);
      }
}

}  // namespace
}  // namespace flextrain::simulator
