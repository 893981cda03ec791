// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "protocol/elastic_request.h"
#include "slurm_plugin/controller/waiting.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::ElementsAre;

NodeRecord node(const std::string& name) {
  NodeRecord record;
  record.name = name;
  record.usable = true;
  record.state = "IDLE";
  record.partitions = {"gpu"};
  record.features = {"ib"};
  record.gres_type = "a100";
  record.gpus = 8;
  record.cpus = 64;
  record.memory_mib = 256000;
  return record;
}

class FitTest : public ::testing::Test {
 public:
  FitTest() {
    view.now = 1000;
    view.partitions = {{.name = "gpu", .up = true, .nodes = {}}};
    view.nodes = {node("n1"), node("n2"), node("n3")};
    base.job_id = 1;
    base.partition = "gpu";
    base.state = JobState::kRunning;
    base.nodes = {"n1"};
    base.gpus_allocated = base.gpus_requested = 4;
    base.gpus_on_node = {{"n1", 4}};
    base.cpus_on_node = {{"n1", 16}};
    base.cpus_requested = 16;
    base.memory_per_node_mib = 64000;
    view.nodes[0].gpus_allocated = 4;
  }

  std::vector<std::string> offered() {
    std::vector<std::string> names;
    const auto own = own_nodes(base, config, companions);
    for (const auto& offer :
         companion_offers(view, needs_of_base(base, config), config, taken, planned)) {
      if (std::find(own.begin(), own.end(), offer.node) != own.end()) continue;
      names.push_back(offer.node + ":" + std::to_string(offer.gpus));
    }
    return names;
  }

  ClusterView view;
  JobRecord base;
  ControllerConfig config;
  NodeAmounts taken;
  std::set<std::string> companions;
  std::map<std::string, int64_t> planned;
};

TEST_F(FitTest, OffersIdleGpusOnOtherNodes) {
  EXPECT_THAT(offered(), ElementsAre("n2:8", "n3:8"));
  config.share_base_nodes = true;
  EXPECT_THAT(offered(), ElementsAre("n1:4", "n2:8", "n3:8"));
}

TEST_F(FitTest, CpusAndMemoryBoundTheGpus) {
  view.nodes[1].cpus_allocated = 50;                    // 14 left, 4 per GPU
  view.nodes[2].memory_allocated_mib = 256000 - 33000;  // 16,000 per GPU
  EXPECT_THAT(offered(), ElementsAre("n2:3", "n3:2"));
}

TEST_F(FitTest, WhatPendingCompanionsWillUseIsNotIdle) {
  taken["n2"] = {8, 32, 0};
  taken["n3"] = {3, 12, 0};
  EXPECT_THAT(offered(), ElementsAre("n3:5"));
}

TEST_F(FitTest, EveryReasonToPassANodeOver) {
  struct Case {
    const char* what;
    std::function<void(FitTest&)> change;
  };
  const Case cases[] = {
      {"unusable", [](FitTest& t) { t.view.nodes[1].usable = false; }},
      {"no free GPU", [](FitTest& t) { t.view.nodes[1].gpus_allocated = 8; }},
      {"other partition", [](FitTest& t) { t.view.nodes[1].partitions = {"cpu"}; }},
      {"feature missing",
       [](FitTest& t) {
         t.base.features = "ib";
         t.view.nodes[1].features = {};
       }},
      {"GPU type",
       [](FitTest& t) {
         t.base.gres_type = "a100";
         t.view.nodes[1].gres_type = "v100";
       }},
      {"excluded", [](FitTest& t) { t.base.excluded_nodes = "n[1-2]"; }},
      {"already a companion", [](FitTest& t) { t.companions = {"n2"}; }},
      {"reserved soon",
       [](FitTest& t) {
         t.view.reservations = {{"maint", 1200, 5000, {"n2"}}};
       }},
      {"planned soon", [](FitTest& t) { t.planned["n2"] = 1200; }},
      {"opted out",
       [](FitTest& t) {
         t.config.opt_out_nodes = {"n2", "n9"};
       }},
  };
  for (const Case& c : cases) {
    FitTest* self = this;
    const ClusterView before = view;
    const JobRecord base_before = base;
    c.change(*self);
    EXPECT_THAT(offered(), ElementsAre("n3:8")) << c.what;
    view = before;
    base = base_before;
    companions.clear();
    planned.clear();
    config = {};
  }
}

TEST_F(FitTest, LaterPlansAndReservationsDoNotMatter) {
  planned["n2"] = 1300;
  view.reservations = {{"maint", 1300, 5000, {"n2"}}, {"over", 10, 900, {"n2"}}};
  EXPECT_THAT(offered(), ElementsAre("n2:8", "n3:8"));
}

TEST_F(FitTest, ABaseInAReservationGrowsInsideItOnly) {
  base.reservation = "course";
  view.reservations = {{"course", 10, 5000, {"n1", "n2"}}};
  EXPECT_THAT(offered(), ElementsAre("n2:8"));
}

TEST_F(FitTest, PartitionThatIsDownOrTooShortOffersNothing) {
  view.partitions[0].max_time_seconds = 240;
  EXPECT_THAT(offered(), ElementsAre());
  view.partitions[0].max_time_seconds = 300;
  EXPECT_THAT(offered(), ElementsAre("n2:8", "n3:8"));
  view.partitions[0].up = false;
  EXPECT_THAT(offered(), ElementsAre());
}

TEST_F(FitTest, AnUnreadableExclusionExcludesEverything) {
  base.excluded_nodes = "n[1-";
  EXPECT_THAT(offered(), ElementsAre());
}

JobRecord waiting_job(uint32_t id) {
  JobRecord job;
  job.job_id = id;
  job.partition = "gpu";
  job.state = JobState::kPending;
  job.state_reason = "Resources";
  job.submit_time = job.eligible_time = 900;
  job.gpus_requested = 16;
  job.nodes_requested = 2;
  job.tres_per_node = "gres:gpu:8";
  job.cpus_requested = 16;
  return job;
}

TEST(Waiting, ClassifiesByWhatSlurmSays) {
  struct Case {
    const char* what;
    std::function<void(JobRecord&)> change;
    WaitKind kind;
  };
  const Case cases[] = {
      {"resources", [](JobRecord&) {}, WaitKind::kGpus},
      {"priority", [](JobRecord& j) { j.state_reason = "Priority"; }, WaitKind::kGpus},
      {"just submitted", [](JobRecord& j) { j.state_reason = "None"; }, WaitKind::kGpus},
      {"running", [](JobRecord& j) { j.state = JobState::kRunning; }, WaitKind::kNone},
      {"no GPUs", [](JobRecord& j) { j.gpus_requested = 0; }, WaitKind::kNone},
      {"held", [](JobRecord& j) { j.held = true; }, WaitKind::kOther},
      {"dependency", [](JobRecord& j) { j.state_reason = "Dependency"; }, WaitKind::kOther},
      {"limit", [](JobRecord& j) { j.state_reason = "QOSMaxGRESPerUser"; }, WaitKind::kOther},
      {"begin time", [](JobRecord& j) { j.eligible_time = 5000; }, WaitKind::kOther},
      {"not eligible", [](JobRecord& j) { j.eligible_time = 0; }, WaitKind::kOther},
      {"companion", [](JobRecord& j) { j.admin_comment = protocol::companion_token(1, "x"); },
       WaitKind::kNone},
      {"another elastic base", [](JobRecord& j) { j.admin_comment = protocol::elastic_token({}); },
       WaitKind::kGpus},
  };
  for (const Case& c : cases) {
    JobRecord job = waiting_job(9);
    c.change(job);
    EXPECT_EQ(classify_waiting(job, 1000), c.kind) << c.what;
  }
}

TEST_F(FitTest, WaitingJobsComeInSlurmsOrderWithTheirOffers) {
  view.partitions.push_back(
      {.name = "high", .up = true, .nodes = {}, .max_time_seconds = 0, .priority_tier = 5});
  for (NodeRecord& record : view.nodes) record.partitions.push_back("high");
  view.nodes[1].gpus_allocated = 8;
  view.nodes[2].gpus_allocated = 6;
  JobRecord late = waiting_job(11), urgent = waiting_job(12), tiered = waiting_job(13),
            held = waiting_job(14);
  urgent.priority = 10;
  tiered.partition = "high";
  tiered.excluded_nodes = "n3";
  held.held = true;
  view.jobs = {late, urgent, tiered, held};
  NodeAmounts promised;
  promised["n2"] = {4, 8, 0};
  const WaitingView queue = waiting_view(view, {}, promised, 10);
  EXPECT_EQ(queue.other_waiting_gpu_jobs, 1);
  ASSERT_EQ(queue.waiting.size(), 3u);
  EXPECT_EQ(queue.waiting[0].job_id, 13u);
  EXPECT_EQ(queue.waiting[1].job_id, 12u);
  EXPECT_EQ(queue.waiting[2].job_id, 11u);
  const policy::WaitingJob& first = queue.waiting[0];
  EXPECT_EQ(first.gpus, 16);
  EXPECT_EQ(first.gpus_per_node, 8);
  EXPECT_EQ(first.nodes, 2);
  EXPECT_THAT(first.usable_nodes.items(), ElementsAre("n1", "n2"));
  ASSERT_EQ(first.offers.size(), 2u);
  EXPECT_EQ(first.offers[0].gpus, 4);
  EXPECT_EQ(first.offers[1].gpus, 4);  // promised ones count
  EXPECT_EQ(queue.waiting[1].offers.size(), 3u);
  EXPECT_EQ(queue.waiting[1].offers.identity(), queue.waiting[2].offers.identity()) << "shared";
  const WaitingView head = waiting_view(view, {}, promised, 2);
  ASSERT_EQ(head.waiting.size(), 2u);
  EXPECT_EQ(head.waiting[1].job_id, 12u);
  EXPECT_EQ(head.more_waiting, 1);
}

TEST_F(FitTest, OfALongQueueTheFirstInSlurmsOrder) {
  view.partitions.push_back(
      {.name = "high", .up = true, .nodes = {}, .max_time_seconds = 0, .priority_tier = 5});
  std::mt19937 random(7);
  for (uint32_t id = 1; id <= 3000; ++id) {
    JobRecord job = waiting_job(id);
    if (random() % 40 == 0) job.partition += ",high";
    job.priority = 1 + random() % 5;
    job.submit_time = 500 - random() % 100;
    view.jobs.push_back(job);
  }
  std::vector<JobRecord> all = view.jobs;
  std::sort(all.begin(), all.end(), [](const JobRecord& a, const JobRecord& b) {
    const auto key = [](const JobRecord& job) {
      const bool high = job.partition.find("high") != std::string::npos;
      return std::tuple(high ? 0 : 1, -static_cast<int64_t>(job.priority), job.submit_time,
                        job.job_id);
    };
    return key(a) < key(b);
  });
  for (const size_t depth : {1u, 70u, 500u, 3000u, 5000u}) {
    const WaitingView queue = waiting_view(view, {}, {}, depth);
    ASSERT_EQ(queue.waiting.size(), std::min<size_t>(depth, 3000));
    EXPECT_EQ(queue.more_waiting, depth < 3000 ? static_cast<int>(3000 - depth) : 0);
    for (size_t i = 0; i < queue.waiting.size(); ++i) {
      ASSERT_EQ(queue.waiting[i].job_id, all[i].job_id) << "place " << i << " of " << depth;
    }
  }
}

TEST_F(FitTest, NodesPlannedForTheQueueAreIdleForTheQueueOnly) {
  view.nodes[1].usable = false;
  view.nodes[1].planned = true;
  view.nodes[2].usable = false;
  view.jobs = {waiting_job(9)};
  EXPECT_THAT(waiting_view(view, {}, {}, 10).waiting[0].usable_nodes.items(),
              ElementsAre("n1", "n2"));
  EXPECT_THAT(offered(), ElementsAre());
}

TEST_F(FitTest, PlannedStartsAreTheSoonestOfPendingJobs) {
  JobRecord a = waiting_job(9), b = waiting_job(10), companion = waiting_job(11),
            past = waiting_job(12);
  a.planned_nodes = "n[1-2]";
  a.start_time = 2000;
  b.planned_nodes = "n2";
  b.start_time = 1500;
  companion.planned_nodes = "n3";
  companion.start_time = 1100;
  companion.admin_comment = protocol::companion_token(1, "x");
  past.planned_nodes = "n3";
  past.start_time = 999;
  view.jobs = {a, b, companion, past};
  EXPECT_THAT(planned_starts(view), ElementsAre(std::pair<const std::string, int64_t>{"n1", 2000},
                                                std::pair<const std::string, int64_t>{"n2", 1500}));
}

TEST_F(FitTest, IdleGpusThatAreOfNoUseSayWhy) {
  EXPECT_EQ(why_not_usable(view, view.nodes[1], config), "");
  view.nodes[1].usable = false;
  view.nodes[1].state = "IDLE+DRAIN";
  EXPECT_EQ(why_not_usable(view, view.nodes[1], config), "node is idle+drain");
  config.opt_out_nodes = {"n3"};
  EXPECT_EQ(why_not_usable(view, view.nodes[2], config), "opted out (OptOutNodes)");
  config.partitions = {"other"};
  EXPECT_NE(why_not_usable(view, view.nodes[2], config), "");
  view.nodes[2].gpus_allocated = 8;
  EXPECT_EQ(why_not_usable(view, view.nodes[2], config), "");
}

}  // namespace
}  // namespace flextrain::slurm_plugin
