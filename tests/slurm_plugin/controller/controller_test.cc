// SPDX-License-Identifier: GPL-2.0-or-later
// The controller with its threads, its port and real HTTP.
#include "controller_fixture.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;

TEST_F(ControllerTest, StartsAnswersAndStops) {
  start();
  EXPECT_EQ(diag().at("config_file"), "/etc/slurm/flextrain.conf");
  const auto begin = Steady::now();
  EXPECT_TRUE(controller->stop(milliseconds(5000)));
  EXPECT_LT(Steady::now() - begin, milliseconds(5000));
  EXPECT_EQ(controller->port(), 0);
  EXPECT_TRUE(controller->stop(milliseconds(1)));  // again
  EXPECT_FALSE(controller->start().ok());
}

TEST_F(ControllerTest, ASubmissionIsSeenAtOnce) {
  start();
  EXPECT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  // The hook runs before Slurm has the job.
  controller->wake();
  std::this_thread::sleep_for(milliseconds(300));
  const uint32_t id = submit(true);
  EXPECT_TRUE(eventually([&] { return diag().value("jobs", 0) == 1; }, milliseconds(5000)));
  const auto rows = call(protocol::kQuery, 1001,
                         protocol::to_json(protocol::QueryRequest{"jobs", Json::object()}));
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ(rows->body.at("rows").at(0).at("job_id"), id);
}

TEST_F(ControllerTest, AnAgentRegistersPollsAndGetsItsOrder) {
  start();
  const uint32_t id = submit(true);
  const JobRecord record = cluster.find(id);
  const protocol::JobIdentity identity{"fake", id, record.submit_time, 0};
  protocol::RegisterRequest registration;
  registration.allocations = {{id, "n1", 8, ""}};
  registration.fingerprint = "f";
  const auto registered =
      call(protocol::kRegister, 1001, protocol::to_json(registration), identity);
  ASSERT_TRUE(registered.ok()) << registered.status().message();
  EXPECT_GT(registered->controller_epoch, 0);
  EXPECT_TRUE(registered->body.at("elastic").get<bool>());
  const auto stranger = call(protocol::kPoll, 2002, Json::object(), identity);
  EXPECT_THAT(stranger.status().message(), HasSubstr("not yours"));
  ASSERT_TRUE(call(protocol::kScaleTable, 1001,
                   protocol::to_json(protocol::ScaleTableRequest{scale_table({8, 16}), nullptr}),
                   identity)
                  .ok());
  protocol::ProgressRequest long_to_run;
  long_to_run.step = 1;
  long_to_run.total_steps = 1'000'000;
  long_to_run.step_seconds = 1;
  long_to_run.gpus = 8;
  long_to_run.state = "running";
  ASSERT_TRUE(call(protocol::kProgress, 1001, protocol::to_json(long_to_run), identity).ok());
  Result<protocol::Envelope> order = unavailable("not yet");
  std::thread poll([&] { order = call(protocol::kPoll, 1001, Json::object(), identity); });
  controller->wake();
  EXPECT_TRUE(eventually([&] { return !cluster.companions().empty(); }));
  if (!cluster.companions().empty()) {
    const JobRecord companion = cluster.companions().front();
    protocol::RegisterRequest there;
    there.role = protocol::AgentRole::kCompanion;
    there.base_job_id = id;
    there.intent_id = protocol::companion_from_comment(companion.admin_comment)->intent_id;
    there.fingerprint = "f";
    there.allocations = {{companion.job_id, companion.nodes.front(), 8, ""}};
    EXPECT_TRUE(call(protocol::kRegister, 1001, protocol::to_json(there),
                     {"fake", companion.job_id, companion.submit_time, 0})
                    .ok());
  }
  poll.join();
  ASSERT_TRUE(order.ok()) << order.status().message();
  EXPECT_EQ(order->body.at("kind"), "grow");
  EXPECT_GT(order->sequence, 0);
}

TEST_F(ControllerTest, AHangingCallDoesNotHoldTheStopAndNothingFollowsIt) {
  start();
  EXPECT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  std::atomic<bool> inside{false}, go_on{false};
  std::atomic<int> later{0};
  cluster.on_call = [&](const char*) {
    if (go_on) ++later;
    inside = true;
    while (!go_on) std::this_thread::sleep_for(milliseconds(5));
  };
  controller->wake();
  ASSERT_TRUE(eventually([&] { return inside.load(); }));
  const auto begin = Steady::now();
  EXPECT_FALSE(controller->stop(milliseconds(200)));
  EXPECT_LT(Steady::now() - begin, milliseconds(1500));
  controller.reset();  // what the thread uses is its own
  go_on = true;
  // The lock on the database goes when the thread has ended.
  EXPECT_TRUE(eventually([&] {
    return store::Store::open({.path = config.database_path, .statfs_magic = std::nullopt}).ok();
  }));
  EXPECT_EQ(later, 0);
  cluster.on_call = nullptr;
}

TEST_F(ControllerTest, WhatIsMissingAtTheStartIsTriedAgain) {
  config.tick_seconds = 1;
  std::atomic<int> tries{0};
  auto d = dependencies();
  d.make_cluster = [&]() -> Result<std::unique_ptr<Cluster>> {
    if (++tries < 3) return unavailable("slurmctld is not up yet");
    return std::unique_ptr<Cluster>(new Lent(cluster));
  };
  controller = Controller::create(config, std::move(d)).value();
  ASSERT_TRUE(controller->start().ok());
  EXPECT_TRUE(eventually([&] { return controller->port() != 0; }));
  EXPECT_EQ(tries, 3);
}

TEST_F(ControllerTest, AFaultBeginsAnewAndEndsNothing) {
  start();
  std::atomic<bool> broken{true};
  cluster.on_call = [&](const char*) {
    if (broken) throw std::runtime_error("boom");
  };
  controller->wake();
  EXPECT_TRUE(eventually([&] { return controller->port() == 0; }));
  broken = false;
  EXPECT_TRUE(eventually([&] { return controller->port() != 0; }));
  EXPECT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  broken = true;  // a stop does not wait for the next beginning
  controller->wake();
  EXPECT_TRUE(eventually([&] { return controller->port() == 0; }));
  EXPECT_TRUE(controller->stop(milliseconds(2000)));
  cluster.on_call = nullptr;
}

// With 10,000 queued jobs a round costs as much processor time as a hundred small ones.
TEST_F(ControllerTest, CostlyRoundsAreRare) {
  std::atomic<int> looks{0};
  cluster.on_call = [&](const char* call) {
    if (std::string_view(call) != "observe") return;
    ++looks;
    const auto used = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    for (const auto begin = used(); used() - begin < milliseconds(50);) {
    }
  };
  const auto begin = Steady::now();
  start();
  const auto lasts = [&] { return Steady::now() - begin; };
  while (lasts() < std::chrono::seconds(6) || (looks < 2 && lasts() < std::chrono::seconds(60))) {
    controller->wake();
    std::this_thread::sleep_for(milliseconds(20));
  }
  controller.reset();
  cluster.on_call = nullptr;
  const double seconds = std::chrono::duration<double>(lasts()).count();
  EXPECT_GE(looks, 2);
  EXPECT_LE(looks, 1 + seconds / 2.45);
}

// A slow answer of slurmctld once kept the controller resting four times as long.
TEST_F(ControllerTest, OneSlowRoundDoesNotSilenceIt) {
  config.tick_seconds = 1;
  start();
  std::atomic<int> looks{0};
  cluster.on_call = [&](const char* call) {
    if (std::string_view(call) == "observe" && ++looks == 1) {
      std::this_thread::sleep_for(milliseconds(3000));
    }
  };
  ASSERT_TRUE(eventually([&] { return looks >= 1; }));
  EXPECT_TRUE(eventually([&] { return looks >= 2; }, milliseconds(3000 + 5000)));
  controller.reset();
  cluster.on_call = nullptr;
}

TEST_F(ControllerTest, ReconfigureTakesEffect) {
  start();
  EXPECT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  EXPECT_EQ(diag().at("elastic"), true);
  ControllerConfig changed = config;
  changed.enabled = false;
  ASSERT_TRUE(controller->reconfigure(changed).ok());  // at once: the next tick is an hour away
  EXPECT_TRUE(eventually([&] { return diag().at("elastic") == false; }));
}

TEST_F(ControllerTest, CreateRefusesWhatCannotWork) {
  EXPECT_FALSE(Controller::create(config, {}).ok());
  ControllerConfig relative = config;
  relative.database_path = "db";
  EXPECT_FALSE(Controller::create(relative, dependencies()).ok());
}

}  // namespace
}  // namespace flextrain::slurm_plugin
