// SPDX-License-Identifier: GPL-2.0-or-later
// An engine's world over many rounds: jobs come and go, agents answer, fail or keep silent, nodes
// are lost, clocks are set. The same seed gives the same life.
#pragma once

#include <random>
#include <vector>

#include "engine_rig.h"

namespace flextrain::slurm_plugin {

// A chance "1 in N"; 0 = never.
struct WorldOptions {
  uint32_t seed = 20261129;
  int nodes = 24, gpus_per_node = 8;
  std::vector<int> elastic_gpus = {8};             // of a base, on one node
  int elastic_every = 40, elastic_rounds = 400;    // a new job every so many rounds, for so many
  int rigid_every = 25, rigid_rounds = 5;          // rounds: at least, and up to 40 more
  int refused_submissions = 200, lost_node = 300;  // begin; they end by themselves
  int clock_set = 400, deaf = 500;
  int requeue = 2000, new_agent = 500;  // of a job, in a round
  int lost_companion = 0;
};

class EngineWorld {
 public:
  explicit EngineWorld(Rig& rig, WorldOptions options)
      : rig_(rig), options_(std::move(options)), random_(options_.seed) {
    rig_.nodes(options_.nodes, options_.gpus_per_node);
    rig_.start();
  }

  // What happens in round n, before the engine looks.
  void happen(int n) {
    if (n % options_.elastic_every == 0) {
      const int gpus = options_.elastic_gpus[static_cast<size_t>(
          options_.elastic_gpus.size() == 1
              ? 0
              : chance(static_cast<int>(options_.elastic_gpus.size())))];
      lives_.push_back({.id = rig_.submit(1000 + n % 7, gpus),
                        .gpus = gpus,
                        .ends = n + options_.elastic_rounds});
    }
    if (n % options_.rigid_every == 0) {
      const int nodes = 1 + chance(3);
      lives_.push_back({.id = rig_.submit(2000, options_.gpus_per_node * nodes, nodes, false),
                        .ends = n + options_.rigid_rounds + chance(40),
                        .elastic = false});
    }
    if (happens(options_.refused_submissions)) rig_.cluster.fail_submissions(true);
    if (chance(5) == 0) rig_.cluster.fail_submissions(false);
    if (happens(options_.lost_node)) {
      rig_.cluster.fail_node("n" + std::to_string(1 + chance(options_.nodes)));
    }
    if (chance(20) == 0) {
      for (int node = 1; node <= options_.nodes; ++node) {
        rig_.cluster.return_node("n" + std::to_string(node));
      }
    }
    if (happens(options_.clock_set)) rig_.set_clock(chance(2) == 0 ? 600 : -600);
    if (happens(options_.deaf)) rig_.cluster.fail_observation(true);
    if (chance(3) == 0) rig_.cluster.fail_observation(false);
    for (Life& life : lives_) act(life, n);
    for (const JobRecord& companion : rig_.cluster.companions()) {
      if (companion.state != JobState::kRunning) continue;
      if (happens(options_.lost_companion)) {
        rig_.cluster.finish(companion.job_id, 1);
      } else if (chance(20) != 0) {
        TestAgent(rig_, companion.job_id).register_companion();
      }
    }
    std::erase_if(lives_, [&](const Life& life) {
      const JobRecord record = rig_.cluster.find(life.id);
      return record.job_id == 0 || record.state == JobState::kEnded;
    });
  }

  // The controller dies and is started again.
  void restart() {
    rig_.start();
    for (Life& life : lives_) {
      life.poll.reset();
      life.restart = -1;
    }
  }

  // Every job ends; nothing may be left of any.
  void end() {
    rig_.cluster.fail_observation(false);
    for (const Life& life : lives_) rig_.cluster.finish(life.id);
    for (int n = 0; n < 5; ++n) rig_.step(10);
    EXPECT_TRUE(rig_.engine->jobs().empty());
    EXPECT_TRUE(rig_.cluster.companions().empty());
    EXPECT_TRUE(rig_.store->queries().open_intents()->empty());
    EXPECT_TRUE(rig_.store->queries().jobs({.active_only = true})->empty());
  }

  int registered() const { return registered_; }  // agents so far
  int chance(int of) { return static_cast<int>(random_() % static_cast<unsigned>(of)); }

 private:
  // A job's agent, as long as the job runs.
  struct Life {
    uint32_t id = 0;
    int gpus = 0;
    int restart = -1;  // the run its agent registered for
    int ends = 0;      // round
    bool elastic = true;
    std::shared_ptr<TestReply> poll = nullptr;
    int64_t sequence = 0;
  };

  bool happens(int one_in) { return one_in > 0 && chance(one_in) == 0; }

  void act(Life& life, int n) {
    const JobRecord record = rig_.cluster.find(life.id);
    if (record.state != JobState::kRunning) return;
    if (n >= life.ends) {
      if (life.elastic) TestAgent(rig_, life.id).bye(0);
      rig_.cluster.finish(life.id);
      return;
    }
    if (!life.elastic) return;
    if (happens(options_.requeue)) {
      rig_.cluster.requeue(life.id);
      return;
    }
    TestAgent agent(rig_, life.id);
    if (life.restart != record.restart_count || happens(options_.new_agent)) {
      agent.register_base();
      agent.table({life.gpus, 2 * life.gpus, 3 * life.gpus, 4 * life.gpus});
      life.restart = record.restart_count;
      ++registered_;
    }
    const ManagedJob* job = rig_.job(life.id);
    agent.progress(n, 1'000'000, 1, job == nullptr ? life.gpus : job->held_gpus(),
                   chance(8) == 0 ? "saving" : "running");
    if (life.poll && life.poll->answered()) {
      const Json& body = life.poll->answer_->body;
      if (life.poll->answer_->error.empty() && body.value("kind", "none") != "none") {
        const protocol::Order order = order_of(*life.poll);
        life.sequence = life.poll->answer_->sequence;
        if (order.kind == protocol::OrderKind::kGrow && chance(8) == 0) {
          agent.report(order.order_id, false, agent.own(), 0, "mpirun ended with 205");
        } else if (chance(50) != 0) {  // else it never answers
          agent.report(order.order_id, true, order.allocations, 0);
          agent.report(order.order_id, true, order.allocations, 4);
        }
      } else if (!life.poll->answer_->error.empty()) {
        life.restart = -1;
      }
      life.poll.reset();
    }
    if (job != nullptr && job->state == ElasticState::kRecovering) {
      agent.report("", true, agent.own(), 5, "a companion was lost");
    }
    if (job != nullptr && job->row.failures >= 3 && chance(10) == 0) {
      rig_.send(protocol::kCommand, {},
                protocol::to_json(protocol::CommandRequest{"resume", life.id}), 0);
    }
    if (!life.poll) life.poll = agent.poll(life.sequence);
  }

  Rig& rig_;
  const WorldOptions options_;
  std::mt19937 random_;
  std::vector<Life> lives_;
  int registered_ = 0;
};

}  // namespace flextrain::slurm_plugin
