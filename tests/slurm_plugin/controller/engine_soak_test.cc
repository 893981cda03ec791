// SPDX-License-Identifier: GPL-2.0-or-later
// 10,000 rounds over a cluster where jobs come and go, fail, are taken back and requeued: nothing
// is lost and memory stays flat. Under the address sanitizer the same run looks for leaks.
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "engine_rig.h"

namespace flextrain::slurm_plugin {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr int kRounds = 10'000, kWarmUp = 3'000, kWindow = 500;
constexpr int kNodes = 24;
constexpr size_t kFlat = size_t{1} << 20;

// A job's agent, as long as the job runs.
struct Life {
  uint32_t id = 0;
  int restart = -1;  // the run its agent registered for
  int ends = 0;      // round
  bool elastic = true;
  std::shared_ptr<TestReply> poll;
  int64_t sequence = 0;
};

class Soak {
 public:
  Soak() {
    rig_.config.policy.arrival_window_seconds = 3600;
    rig_.config.policy.require_empty_queue = false;
    rig_.steady = true;
    rig_.nodes(kNodes);
    rig_.start();
  }

  void round(int n) {
    if (n % 40 == 0) lives_.push_back({.id = rig_.submit(1000 + n % 7, 8), .ends = n + 400});
    if (n % 25 == 0) {
      const int nodes = 1 + chance(3);
      lives_.push_back({.id = rig_.submit(2000, 8 * nodes, nodes, false),
                        .ends = n + 5 + chance(40),
                        .elastic = false});
    }
    if (chance(200) == 0) rig_.cluster.fail_submissions(true);
    if (chance(5) == 0) rig_.cluster.fail_submissions(false);
    if (chance(300) == 0) rig_.cluster.fail_node("n" + std::to_string(1 + chance(kNodes)));
    if (chance(20) == 0) {
      for (int node = 1; node <= kNodes; ++node) {
        rig_.cluster.return_node("n" + std::to_string(node));
      }
    }
    if (chance(400) == 0) rig_.set_clock(chance(2) == 0 ? 600 : -600);
    if (chance(500) == 0) rig_.cluster.fail_observation(true);
    if (chance(3) == 0) rig_.cluster.fail_observation(false);
    for (Life& life : lives_) act(life, n);
    for (const JobRecord& companion : rig_.cluster.companions()) {
      if (companion.state == JobState::kRunning && chance(20) != 0) {
        TestAgent(rig_, companion.job_id).register_companion();
      }
    }
    std::erase_if(lives_, [&](const Life& life) {
      const JobRecord record = rig_.cluster.find(life.id);
      return record.job_id == 0 || record.state == JobState::kEnded;
    });
    rig_.step(10);
    if (n % 50 == 49) rig_.cluster.purge();
  }

  void end() {
    rig_.cluster.fail_observation(false);
    for (const Life& life : lives_) rig_.cluster.finish(life.id);
    for (int n = 0; n < 5; ++n) rig_.step(10);
    EXPECT_TRUE(rig_.engine->jobs().empty());
    EXPECT_TRUE(rig_.cluster.companions().empty());
    EXPECT_TRUE(rig_.store->queries().open_intents()->empty());
    EXPECT_TRUE(rig_.store->queries().jobs({.active_only = true})->empty());
  }

  Rig& rig() { return rig_; }
  int submitted() const { return submitted_; }

 private:
  int chance(int of) { return static_cast<int>(random_() % static_cast<unsigned>(of)); }

  void act(Life& life, int n) {
    const JobRecord record = rig_.cluster.find(life.id);
    if (record.state != JobState::kRunning) return;
    if (n >= life.ends) {
      if (life.elastic) TestAgent(rig_, life.id).bye(0);
      rig_.cluster.finish(life.id);
      return;
    }
    if (!life.elastic) return;
    if (chance(2000) == 0) {
      rig_.cluster.requeue(life.id);
      return;
    }
    TestAgent agent(rig_, life.id);
    if (life.restart != record.restart_count || chance(500) == 0) {
      agent.register_base();
      protocol::ScaleTableRequest table{scale_table({8, 16, 24, 32}), Json::object()};
      agent.send(protocol::kScaleTable, protocol::to_json(table));
      life.restart = record.restart_count;
      ++submitted_;
    }
    const ManagedJob* job = rig_.job(life.id);
    agent.progress(n, 1'000'000, 1, job == nullptr ? 8 : job->held_gpus());
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

  Rig rig_;
  std::mt19937 random_{20261129};
  std::vector<Life> lives_;
  int submitted_ = 0;
};

size_t allocated() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(EngineSoak, TenThousandRoundsAndMemoryStaysFlat) {
  // What is measured is the controller, not a disk's fsync.
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  set_log_level(LogLevel::kError);
  Soak soak;
  size_t early = 0, late = 0;  // the most in a window
  for (int n = 0; n < kRounds; ++n) {
    soak.round(n);
    if (n >= kWarmUp && n < kWarmUp + kWindow) early = std::max(early, allocated());
    if (n >= kRounds - kWindow) late = std::max(late, allocated());
  }
  soak.end();
  EXPECT_GE(soak.submitted(), 200);
  const auto scalings = soak.rig().store->queries().scalings({.limit = 100'000}).value();
  EXPECT_GT(scalings.size(), 500u);
  if (!kSanitized) {
    EXPECT_LT(late, early + kFlat) << "allocated bytes grew from " << early << " to " << late;
  }
  RecordProperty("scalings", static_cast<int>(scalings.size()));
  RecordProperty("bytes_early", static_cast<int>(early));
  RecordProperty("bytes_late", static_cast<int>(late));
}

}  // namespace
}  // namespace flextrain::slurm_plugin
