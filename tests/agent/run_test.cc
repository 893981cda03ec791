// SPDX-License-Identifier: MIT
// The base agent as a program: real mpirun, a trainer that keeps the contract, fake Slurm commands,
// a fake controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "protocol/client.h"
#include "protocol/fake_auth.h"
#include "rig.h"

namespace flextrain::agent {
namespace {

using namespace std::chrono_literals;
using protocol::OrderKind;
using ::testing::HasSubstr;

class Run : public ::testing::Test {
 protected:
  // Up to the point where the trainer steps and the controller knows.
  void start_and_settle() {
    rig.start_base(controller.port());
    ASSERT_TRUE(wait_until([&] {
      const auto p = controller.progress();
      return p && p->state == "running" && p->step > 0;
    }));
  }
  bool wait_reports(size_t count) {
    return wait_until([&] { return controller.reports().size() >= count; });
  }
  // Grown by a companion of one GPU on the same host.
  void grow() {
    controller.send_order(rig.order(OrderKind::kGrow, "grow-1", 1, "plan3"), 1);
    ASSERT_TRUE(wait_reports(1));
    ASSERT_TRUE(controller.reports()[0].done) << controller.reports()[0].reason;
  }
  bool steps_on() {  // the trainer makes progress from here
    const std::string path = control_file("progress.json");
    const std::string before = rig.read(path);
    return wait_until([&] { return rig.running() && rig.read(path) != before; });
  }
  // A growth that fails; back on the base it fails as well, until that is mended.
  void goes_on_after(const char* fault) {
    start_and_settle();
    rig.write("leave_at_ranks", "3");
    rig.write(fault, "2");
    controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p"), 1);
    ASSERT_TRUE(wait_until([&] { return rig.launches() >= 7; })) << rig.log();
    rig.remove(fault);
    EXPECT_TRUE(steps_on()) << rig.log();
    EXPECT_EQ(rig.last_size(), 2);
    EXPECT_FALSE(controller.reports()[0].done);
  }
  std::string control_file(const std::string& name) const {
    return "flextrain-" + std::to_string(::geteuid()) + "/job-77.0/" + name;
  }

  Rig rig;
  FakeController controller;
};

TEST_F(Run, TrainsToTheEndWithoutAController) {
  rig.write("steps", "20");
  rig.start_base(1);  // nothing listens there
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_EQ(rig.read("checkpoint"), "20\n");
  EXPECT_EQ(rig.launches(), 1);
  EXPECT_EQ(rig.last_size(), 2);
  EXPECT_EQ(rig.read("device.0"), "4 base\n") << "each rank has one device";
  EXPECT_EQ(rig.read("device.1"), "5 base\n");
  EXPECT_THAT(rig.read("launches"), HasSubstr(" 2 1\n")) << "SLURM_CONF alone is left of SLURM_*";
}

TEST_F(Run, WithoutSlurmAtAll) {
  rig.write("steps", "10");
  for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURMD_NODENAME"}) {
    rig.set_environment(name, "");
  }
  rig.start({"run", "--ranks", "3", "--", FAKE_TRAINER}, 0);
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_EQ(rig.last_size(), 3);
}

TEST_F(Run, RegistersAndForwards) {
  rig.write("steps", "150");
  start_and_settle();
  ASSERT_TRUE(wait_until([&] { return controller.tables() > 0; }));
  EXPECT_EQ(rig.wait_exit(), 0);
  const auto registrations = controller.registrations();
  ASSERT_GE(registrations.size(), 2u) << "again once the fingerprint is known";
  const auto& last = registrations.back();
  EXPECT_EQ(last.role, protocol::AgentRole::kBase);
  EXPECT_EQ(last.fingerprint, "fake-fingerprint");
  EXPECT_EQ(last.allocations, (std::vector<protocol::Allocation>{{77, rig.host(), 2, ""}}));
  EXPECT_EQ(last.work_dir, rig.file("").substr(0, rig.file("").size() - 1));
  EXPECT_THAT(last.fingerprint_command,
              ::testing::ElementsAre("/bin/sh", "-c", "echo fake-fingerprint"));
  EXPECT_TRUE(last.environment.contains("HOME"));
  EXPECT_TRUE(last.environment.contains(protocol::kNoticeAddressVariable));
  for (const auto& [name, value] : last.environment) {
    EXPECT_FALSE(name.starts_with("SLURM_") && name != "SLURM_CONF") << name;
  }
  EXPECT_TRUE(last.rlimits.contains("RLIMIT_NOFILE"));
  const auto identity = controller.identities().front();
  EXPECT_EQ(identity.job_id, 77u);
  EXPECT_EQ(identity.cluster, "fake");
  EXPECT_GT(identity.submit_time, 0);
  ASSERT_TRUE(controller.bye().has_value());
  EXPECT_EQ(controller.bye()->exit_code, 0);
}

TEST_F(Run, GrowsAndShrinks) {
  start_and_settle();
  grow();
  auto report = controller.reports()[0];
  EXPECT_EQ(report.order_id, "grow-1");
  EXPECT_EQ(report.gpus, 3);
  EXPECT_EQ(report.allocations.size(), 2u);
  EXPECT_GT(report.phases.total, 0);
  EXPECT_GT(report.phases.launch, 0);
  EXPECT_NEAR(report.phases.total,
              report.phases.save + report.phases.stop + report.phases.launch + report.phases.load +
                  report.phases.first_step,
              1e-6);
  EXPECT_LT(report.phases.total, 60);
  EXPECT_EQ(rig.last_size(), 3);
  EXPECT_TRUE(wait_until([&] { return rig.read("device.2") == "10 900\n"; }))
      << "the companion's rank runs in the companion's job with its device: "
      << rig.read("device.2");
  EXPECT_TRUE(wait_until([&] {
    const auto p = controller.progress();
    return p && p->plan_id == "plan3" && p->gpus == 3 && p->state == "running";
  }));

  controller.send_order(rig.order(OrderKind::kShrink, "shrink-1", 0, "plan2"), 2);
  ASSERT_TRUE(wait_reports(3));
  const auto reports = controller.reports();
  EXPECT_EQ(reports[1].order_id, "shrink-1");
  EXPECT_TRUE(reports[1].done) << "left";
  EXPECT_EQ(reports[1].phases.total, 0);
  EXPECT_EQ(reports[1].allocations.size(), 1u);
  EXPECT_EQ(reports[2].order_id, "shrink-1");
  EXPECT_TRUE(reports[2].done);
  EXPECT_GT(reports[2].phases.total, 0);
  EXPECT_EQ(reports[2].gpus, 2);
  EXPECT_EQ(rig.last_size(), 2);
  EXPECT_EQ(rig.launches(), 3);
  const int step = std::stoi(rig.read("checkpoint"));
  EXPECT_GT(step, 0);
  rig.signal(SIGUSR1);
  EXPECT_EQ(rig.wait_exit(), 85);
  EXPECT_GE(std::stoi(rig.read("checkpoint")), step) << "no step was lost";
}

// The order to shrink stayed open for ever when the first launch on the base failed: the restart
// that got through was nobody's report.
TEST_F(Run, AShrinkThatNeedsARestartIsReportedInTheEnd) {
  start_and_settle();
  grow();
  rig.write("fail_at_ranks", "2");
  controller.send_order(rig.order(OrderKind::kShrink, "s", 0, "plan2"), 2);
  ASSERT_TRUE(wait_until([&] { return rig.launches() >= 3; }));
  ASSERT_TRUE(wait_until([&] { return rig.log().find("tried again in") != std::string::npos; }));
  rig.remove("fail_at_ranks");
  ASSERT_TRUE(wait_reports(3));
  const auto report = controller.reports()[2];
  EXPECT_EQ(report.order_id, "s");
  EXPECT_TRUE(report.done);
  EXPECT_EQ(report.gpus, 2);
  EXPECT_GT(report.phases.total, 0);
  EXPECT_TRUE(steps_on());
}

// Cells tmp-full and checkpoint-forbidden: where nothing started for 15 s of a switch, the job was
// FAILED after three tries, or at once with 78.
TEST_F(Run, AMovedTrainerThatFailsToStartIsWaitedFor) { goes_on_after("fail_at_ranks"); }
TEST_F(Run, AMovedTrainerThatRefusesToStartIsWaitedFor) { goes_on_after("refuse_at_ranks"); }

TEST_F(Run, AGrowthThatFailsGoesBack) {
  rig.write("fail_at_ranks", "3");
  start_and_settle();
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p"), 1);
  ASSERT_TRUE(wait_reports(1));
  const auto report = controller.reports()[0];
  EXPECT_FALSE(report.done);
  EXPECT_THAT(report.reason, HasSubstr("exit code 9"));
  EXPECT_EQ(report.gpus, 2);
  EXPECT_TRUE(steps_on());
  EXPECT_EQ(rig.last_size(), 2);
}

// A soak's find: mpirun ended with 0, because a daemon could not reach it, and the job was
// COMPLETED at a third of its steps.
TEST_F(Run, AnExitWithoutAFaultIsNoCompletionBeforeTheLastStep) {
  rig.write("leave_at_ranks", "3");
  start_and_settle();
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p"), 1);
  ASSERT_TRUE(wait_reports(1));
  const auto report = controller.reports()[0];
  EXPECT_FALSE(report.done);
  EXPECT_THAT(report.reason, HasSubstr("before its first step"));
  EXPECT_EQ(report.gpus, 2);
  EXPECT_TRUE(steps_on());
  EXPECT_EQ(rig.last_size(), 2);
}

// The job was COMPLETED without a step when mpirun could not reach its daemons at the first launch.
TEST_F(Run, AnMpirunThatStartsNobodyHasNotTrained) {
  rig.write("mpirun", "#!/bin/sh\n[ -e tried ] || { touch tried; exit 0; }\nexec mpirun \"$@\"\n");
  ASSERT_EQ(::chmod(rig.file("mpirun").c_str(), 0755), 0);
  rig.write("steps", "20");
  rig.start_base(controller.port(), {"--mpirun", rig.file("mpirun")});
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_THAT(rig.log(), HasSubstr("no rank has started"));
  EXPECT_EQ(rig.launches(), 1);
  EXPECT_EQ(rig.read("checkpoint"), "20\n");
}

TEST_F(Run, AGrowthWhosePlanIsRefusedGoesBack) {
  rig.write("refuse_at_ranks", "3");
  start_and_settle();
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p"), 1);
  ASSERT_TRUE(wait_reports(1));
  EXPECT_FALSE(controller.reports()[0].done);
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, AGrowthThatTakesTooLongGoesBack) {
  rig.write("slow_at_ranks", "3");
  start_and_settle();
  protocol::Order order = rig.order(OrderKind::kGrow, "g", 1, "p");
  order.timeout_seconds = 4;
  controller.send_order(order, 1);
  ASSERT_TRUE(wait_until([&] { return rig.last_size() == 3; }));
  ASSERT_TRUE(wait_reports(1));
  EXPECT_FALSE(controller.reports()[0].done);
  EXPECT_TRUE(wait_until([&] { return rig.last_size() == 2; }));
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, AnOrderIsExecutedOnce) {
  start_and_settle();
  grow();
  controller.send_order(rig.order(OrderKind::kGrow, "grow-1", 1, "plan3"), 1);
  ASSERT_TRUE(wait_reports(2)) << "its answer is repeated";
  EXPECT_EQ(controller.reports()[1].order_id, "grow-1");
  EXPECT_TRUE(controller.reports()[1].done);
  // An older sequence under another name is not executed at all.
  controller.send_order(rig.order(OrderKind::kShrink, "old", 0, "plan2"), 1);
  std::this_thread::sleep_for(1500ms);  // nothing must happen
  EXPECT_EQ(rig.launches(), 2);
}

TEST_F(Run, ARestartedControllerIsJoinedAndAnOldOneRefused) {
  start_and_settle();
  const size_t before = controller.registrations().size();
  controller.set_epoch(5);
  ASSERT_TRUE(wait_until([&] { return controller.registrations().size() > before; }));
  grow();
  controller.set_epoch(4);
  controller.send_order(rig.order(OrderKind::kShrink, "s", 0, "plan2"), 9);
  ASSERT_TRUE(
      wait_until([&] { return rig.log().find("epoch 4 is refused") != std::string::npos; }));
  EXPECT_EQ(rig.launches(), 2) << "an older controller's order is not executed";
  EXPECT_TRUE(steps_on());
  controller.set_epoch(6);
  // A poll of before may have taken the order to its grave; the controller offers it again.
  controller.send_order(rig.order(OrderKind::kShrink, "s", 0, "plan2"), 9);
  ASSERT_TRUE(wait_reports(2));
  EXPECT_EQ(controller.reports()[1].order_id, "s");
}

TEST_F(Run, SurvivesAControllerThatGoesAwayAndReturns) {
  start_and_settle();
  const int port = controller.port();
  controller.stop();
  EXPECT_TRUE(steps_on());
  FakeController second(0, port);
  second.set_epoch(2);
  EXPECT_TRUE(wait_until([&] { return !second.registrations().empty(); }));
  second.send_order(rig.order(OrderKind::kGrow, "g2", 1, "plan3"), 1);
  ASSERT_TRUE(wait_until([&] { return !second.reports().empty(); }));
  EXPECT_TRUE(second.reports()[0].done);
}

TEST_F(Run, AStrangerOnTheControllersPortIsNotObeyed) {
  FakeController stranger(1666);
  rig.write("steps", "100");
  rig.start_base(stranger.port());
  stranger.send_order(rig.order(OrderKind::kGrow, "g", 1, "p"), 1);
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_TRUE(stranger.registrations().empty()) << "it cannot even read";
  EXPECT_EQ(rig.launches(), 1);
}

TEST_F(Run, AnOrderWithoutTheBaseIsRefused) {
  start_and_settle();
  protocol::Order order = rig.order(OrderKind::kGrow, "g", 1, "p");
  order.allocations.erase(order.allocations.begin());
  controller.send_order(order, 1);
  ASSERT_TRUE(wait_reports(1));
  EXPECT_FALSE(controller.reports()[0].done);
  EXPECT_THAT(controller.reports()[0].reason, HasSubstr("base"));
  EXPECT_EQ(rig.launches(), 1);
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, ACompanionsDeathIsSurvived) {
  start_and_settle();
  grow();
  ASSERT_TRUE(wait_until([&] { return rig.read("device.2") == "10 900\n"; }));
  rig.write("alive", "");  // Slurm has ended it; its rank dies
  ASSERT_GT(rig.last_trainer(), 0);
  ::kill(rig.last_trainer(), SIGKILL);
  ASSERT_TRUE(wait_reports(3));
  const auto reports = controller.reports();
  EXPECT_EQ(reports[1].order_id, "");
  EXPECT_EQ(reports[1].gpus, 2);
  EXPECT_THAT(reports[1].reason, HasSubstr("900"));
  EXPECT_GT(reports[2].phases.total, 0);
  EXPECT_EQ(rig.last_size(), 2);
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, ADeadCompanionMayShowAsACheckpoint) {
  // scancel of a companion signals its ranks, and the trainer checkpoints everywhere.
  start_and_settle();
  grow();
  rig.write("alive", "");
  ::kill(rig.last_trainer(), SIGTERM);
  ASSERT_TRUE(wait_reports(3));
  EXPECT_EQ(controller.reports()[1].gpus, 2);
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, OneOfTwoCompanionsDies) {
  start_and_settle();
  ASSERT_TRUE(wait_until([&] { return controller.tables() > 0; }));
  protocol::Order order = rig.order(OrderKind::kGrow, "g", 1, "plan4");
  order.allocations.push_back({901, rig.host(), 1, ""});
  controller.send_order(order, 1);
  ASSERT_TRUE(wait_reports(1));
  EXPECT_EQ(controller.reports()[0].gpus, 4);
  rig.write("alive", "901\n");
  ::kill(rig.last_trainer(), SIGKILL);
  // The table has no Plan for three GPUs: back to the base.
  ASSERT_TRUE(wait_reports(3));
  EXPECT_EQ(controller.reports()[2].gpus, 2);
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, AFailingTrainerIsRestarted) {
  start_and_settle();
  rig.write("crash", "");
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 2; }));
  EXPECT_TRUE(steps_on());
  rig.signal(SIGTERM);
  EXPECT_EQ(rig.wait_exit(), 85);
}

TEST_F(Run, ATrainerThatNeverStartsIsGivenUp) {
  rig.write("fail_at_ranks", "2");
  rig.start_base(controller.port());
  EXPECT_EQ(rig.wait_exit(), 9);
  EXPECT_EQ(rig.launches(), 3);
  ASSERT_TRUE(controller.bye().has_value());
  EXPECT_EQ(controller.bye()->exit_code, 9);
}

TEST_F(Run, ABadConfigurationIsNotRetried) {
  rig.write("refuse_at_ranks", "2");
  rig.start_base(controller.port());
  EXPECT_EQ(rig.wait_exit(), 78);
  EXPECT_EQ(rig.launches(), 1);
}

TEST_F(Run, TheUsersSignalCheckpointsAndEnds) {
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) {
    Rig one;
    one.start_base(1);
    ASSERT_TRUE(wait_until([&] { return !one.read(control_file("progress.json")).empty(); }));
    one.signal(number);
    one.signal(number);
    EXPECT_EQ(one.wait_exit(), 85) << number;
    EXPECT_FALSE(one.read("checkpoint").empty());
    EXPECT_EQ(one.launches(), 1);
  }
}

TEST_F(Run, TheUsersSignalBeforeTheFirstStep) {
  rig.write("slow_at_ranks", "2");
  rig.start_base(1);
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 1; }));
  rig.signal(SIGUSR1);
  EXPECT_EQ(rig.wait_exit(), 85);
}

TEST_F(Run, TheUsersSignalDuringASwitch) {
  rig.write("slow_at_ranks", "3");
  start_and_settle();
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p"), 1);
  ASSERT_TRUE(wait_until([&] { return rig.last_size() == 3; }));
  rig.signal(SIGUSR1);
  EXPECT_EQ(rig.wait_exit(), 85);
  ASSERT_FALSE(controller.reports().empty());
  EXPECT_FALSE(controller.reports()[0].done);
}

TEST_F(Run, AShrinkOvertakesAGrowth) {
  rig.write("slow_at_ranks", "3");
  start_and_settle();
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1);
  ASSERT_TRUE(wait_until([&] { return rig.last_size() == 3; }));
  controller.send_order(rig.order(OrderKind::kShrink, "s", 0, "p2"), 2);
  ASSERT_TRUE(wait_reports(3));
  const auto reports = controller.reports();
  EXPECT_EQ(reports[0].order_id, "g");
  EXPECT_FALSE(reports[0].done);
  EXPECT_EQ(reports[2].order_id, "s");
  EXPECT_TRUE(reports[2].done);
  EXPECT_EQ(rig.last_size(), 2);
}

TEST_F(Run, AShrinkWhoseTrainerDoesNotAnswerStillLeaves) {
  start_and_settle();
  grow();
  rig.write("ignore_signals", "");
  protocol::Order order = rig.order(OrderKind::kShrink, "s", 0, "p2");
  order.timeout_seconds = 2;
  controller.send_order(order, 2);
  ASSERT_TRUE(wait_reports(3));
  EXPECT_TRUE(controller.reports()[1].done);
  EXPECT_EQ(rig.last_size(), 2);
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, ATrainerWithoutPhasesWorksToo) {
  rig.write("no_phases", "");
  start_and_settle();
  grow();
  EXPECT_GT(controller.reports()[0].phases.total, 0);
}

TEST_F(Run, ACompanionCalledBackBySlurmIsLeft) {
  start_and_settle();
  grow();
  const auto door = protocol::parse_host_list(
      controller.registrations().back().environment.at(protocol::kNoticeAddressVariable), 0);
  ASSERT_TRUE(door.ok());
  protocol::ClientOptions options;
  options.hosts = {{"127.0.0.1", door->front().port}};
  options.controller_uid = ::getuid();
  options.timeout = kPatience;
  const auto notice = [&](uint32_t job) {
    return protocol::make_request(protocol::kNotice, {"fake", job, 0, 0}, 0,
                                  protocol::NoticeRequest{job, "signal USR1"});
  };
  // Another user cannot.
  auto stranger = std::move(*protocol::make_client(
      options, std::make_shared<protocol::FakeAuthenticator>(::getuid() + 1, 1)));
  EXPECT_FALSE(stranger->call(notice(900)).ok());
  auto client = std::move(*protocol::make_client(
      options, std::make_shared<protocol::FakeAuthenticator>(::getuid(), ::getgid())));
  EXPECT_TRUE(client->call(notice(555)).ok()) << "one that is not in use may go at once";
  EXPECT_EQ(rig.launches(), 2);
  const pid_t trainer = rig.last_trainer();  // the next one may be there before the answer is
  EXPECT_TRUE(client->call(notice(900)).ok());
  EXPECT_TRUE(gone(trainer)) << "answered before the trainer had left";
  ASSERT_TRUE(wait_reports(3));
  EXPECT_EQ(controller.reports()[1].order_id, "");
  EXPECT_EQ(controller.reports()[2].gpus, 2);
  EXPECT_GT(controller.reports()[2].phases.total, 0);
  EXPECT_TRUE(steps_on());
  // It is not taken again.
  controller.send_order(rig.order(OrderKind::kGrow, "again", 1, "p"), 7);
  ASSERT_TRUE(wait_reports(4));
  EXPECT_FALSE(controller.reports()[3].done);
}

TEST_F(Run, NotElasticMeansSupervised) {
  protocol::RegisterResponse no;
  no.elastic = false;
  no.reason = "submitted without --elastic";
  controller.set_registration(no);
  rig.write("steps", "60");
  rig.start_base(controller.port());
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_THAT(rig.log(), HasSubstr("submitted without --elastic"));
  EXPECT_EQ(controller.tables(), 0);
}

TEST_F(Run, NothingIsLeftBehind) {
  rig.write("steps", "10");
  rig.start_base(1);
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_EQ(rig.read(control_file("progress.json")), "");
}

TEST_F(Run, ATrainerThatHangsIsRestarted) {
  rig.write("checkpoint", "5");
  rig.start_base(controller.port(), {"--stall-limit", "4"});
  ASSERT_TRUE(wait_until([&] { return controller.progress() && controller.progress()->step > 5; }));
  const pid_t stopped = rig.last_trainer();
  ::kill(stopped, SIGSTOP);
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 2; }));
  EXPECT_TRUE(wait_until([&] { return gone(stopped); })) << "nothing of it may keep a GPU";
  EXPECT_TRUE(steps_on());
  EXPECT_THAT(rig.log(), HasSubstr("the trainer hangs: no step for"));
  rig.signal(SIGTERM);
  EXPECT_EQ(rig.wait_exit(), 85);
}

TEST_F(Run, AHangWhileGrownLeavesTheCompanions) {
  rig.start_base(controller.port(), {"--stall-limit", "4"});
  ASSERT_TRUE(wait_until([&] { return controller.progress() && controller.progress()->step > 0; }));
  grow();
  ::kill(rig.last_trainer(), SIGSTOP);
  ASSERT_TRUE(wait_reports(3));
  const auto reports = controller.reports();
  EXPECT_EQ(reports[1].order_id, "");
  EXPECT_THAT(reports[1].reason, HasSubstr("hangs"));
  EXPECT_EQ(reports[2].gpus, 2);
  EXPECT_EQ(rig.last_size(), 2);
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, AStoppedMpirunIsNoHindrance) {
  rig.start_base(controller.port(), {"--stall-limit", "4"});
  ASSERT_TRUE(wait_until([&] { return controller.progress() && controller.progress()->step > 0; }));
  std::ifstream stat("/proc/" + std::to_string(rig.last_trainer()) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(stat), {}};
  const pid_t mpirun = std::atoi(text.c_str() + text.rfind(')') + 3);
  ASSERT_GT(mpirun, 1);
  ::kill(mpirun, SIGSTOP);
  grow();
  EXPECT_TRUE(steps_on());
}

// It would hang again for ever.
TEST_F(Run, AHangAtTheSameStepIsGivenUp) {
  rig.write("hang_at", "10");
  rig.start_base(controller.port(), {"--stall-limit", "2", "--max-restarts", "1"});
  EXPECT_GT(rig.wait_exit(), 0);
  EXPECT_EQ(rig.launches(), 2);
  ASSERT_TRUE(controller.bye().has_value());
  EXPECT_THAT(controller.bye()->reason, HasSubstr("hung 2 times"));
}

TEST_F(Run, AHangOnTheUsersSignalIsBounded) {
  rig.write("hang_on_signal", "");
  rig.start_base(controller.port(), {"--stall-limit", "3"});
  ASSERT_TRUE(wait_until([&] { return controller.progress() && controller.progress()->step > 0; }));
  rig.signal(SIGUSR1);
  EXPECT_EQ(rig.wait_exit(), 74);
  EXPECT_EQ(rig.launches(), 1);
  EXPECT_THAT(rig.log(), HasSubstr("no checkpoint on the user's signal: the trainer hangs"));
}

// What it had to do is done: nobody waits a minute for it.
TEST_F(Run, ATrainerThatSavesButDoesNotLeaveIsKilledSoon) {
  start_and_settle();
  rig.write("never_ends", "");
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1);
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 2; }, 45s));
  const int saved = std::stoi(rig.read("checkpoint"));
  ASSERT_TRUE(wait_reports(1));
  EXPECT_TRUE(controller.reports()[0].done) << controller.reports()[0].reason;
  // The fake's ranks do not wait for each other: all must have their handlers.
  ASSERT_TRUE(wait_until([&] { return rig.read("device.2") == "10 900\n"; }));
  rig.signal(SIGUSR1);
  EXPECT_EQ(rig.wait_exit(), 85) << "it is saved";
  EXPECT_GT(std::stoi(rig.read("checkpoint")), saved);
}

TEST_F(Run, ALongSaveIsNoHang) {
  rig.write("save_seconds", "6");
  rig.start_base(controller.port(), {"--stall-limit", "2"});
  ASSERT_TRUE(wait_until([&] { return controller.progress() && controller.progress()->step > 0; }));
  rig.signal(SIGUSR1);
  EXPECT_EQ(rig.wait_exit(), 85);
  EXPECT_FALSE(rig.read("checkpoint").empty());
}

TEST_F(Run, ASuspendedJobIsNotKilledOnResume) {
  rig.start_base(controller.port(), {"--stall-limit", "3"});
  ASSERT_TRUE(wait_until([&] { return controller.progress() && controller.progress()->step > 0; }));
  rig.signal(SIGSTOP);  // Slurm stops all of a job at once
  ::kill(rig.last_trainer(), SIGSTOP);
  std::this_thread::sleep_for(8s);
  rig.signal(SIGCONT);  // and resumes it node by node
  std::this_thread::sleep_for(1s);
  ::kill(rig.last_trainer(), SIGCONT);
  EXPECT_TRUE(steps_on());
  EXPECT_EQ(rig.launches(), 1);
}

TEST_F(Run, AGrowthWhoseCheckpointFailsIsGivenUpWithoutLosingAStep) {
  start_and_settle();
  const pid_t before = rig.last_trainer();
  rig.write("save_fails", "No space left on device");
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p"), 1);
  ASSERT_TRUE(wait_reports(1));
  EXPECT_FALSE(controller.reports()[0].done);
  EXPECT_THAT(controller.reports()[0].reason, HasSubstr("No space left on device"));
  EXPECT_EQ(controller.reports()[0].gpus, 2);
  EXPECT_TRUE(steps_on());
  EXPECT_EQ(rig.last_trainer(), before) << "the trainer was never stopped";
  rig.remove("save_fails");
  controller.send_order(rig.order(OrderKind::kGrow, "g2", 1, "p"), 2);
  ASSERT_TRUE(wait_reports(2));
  EXPECT_TRUE(controller.reports()[1].done) << controller.reports()[1].reason;
}

TEST_F(Run, AShrinkWhoseCheckpointFailsLeavesAllTheSame) {
  start_and_settle();
  grow();
  rig.write("save_fails", "Disk quota exceeded");
  protocol::Order order = rig.order(OrderKind::kShrink, "s", 0, "p2");
  order.timeout_seconds = 3;
  controller.send_order(order, 2);
  ASSERT_TRUE(wait_reports(3));
  EXPECT_TRUE(controller.reports()[1].done);
  EXPECT_THAT(controller.reports()[1].reason, HasSubstr("Disk quota exceeded"));
  EXPECT_EQ(rig.last_size(), 2);
  EXPECT_TRUE(steps_on());
}

TEST_F(Run, ASaveThatFailsOnTheUsersSignalHasACodeOfItsOwn) {
  start_and_settle();
  rig.write("save_fails", "No space left on device");
  rig.signal(SIGUSR1);
  EXPECT_EQ(rig.wait_exit(), 74);
  EXPECT_EQ(rig.launches(), 1);
  EXPECT_THAT(rig.log(), HasSubstr("No space left on device; the last one stands"));
}

TEST_F(Run, AControlFolderThatCannotBeWrittenStopsNothing) {
  rig.start_base(controller.port(), {"--stall-limit", "3"});
  ASSERT_TRUE(wait_until([&] { return controller.progress() && controller.progress()->step > 0; }));
  const pid_t before = rig.last_trainer();
  // What the agent tries it with cannot be written; as root no mode would do.
  ASSERT_TRUE(std::filesystem::create_directories(rig.file(control_file("probe/x"))));
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p"), 1);
  ASSERT_TRUE(wait_reports(1));
  EXPECT_FALSE(controller.reports()[0].done);
  EXPECT_THAT(controller.reports()[0].reason, HasSubstr("cannot be told"));
  ::kill(before, SIGSTOP);
  ASSERT_TRUE(wait_until([&] {
    return rig.log().find("whether the trainer hangs cannot be told") != std::string::npos;
  }));
  ::kill(before, SIGCONT);
  EXPECT_TRUE(steps_on());
  EXPECT_EQ(rig.last_trainer(), before);
}

TEST_F(Run, AFullLogDiskEndsNothing) {
  std::filesystem::create_symlink("/dev/full", rig.file("agent.log"));
  rig.write("steps", "40");
  rig.start_base(1, {"-v"});
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_EQ(rig.read("checkpoint"), "40\n");
}

TEST_F(Run, AClockThatJumpsChangesNoDuration) {
  for (const char* jump : {"600", "-600"}) {
    Rig one;
    FakeController two;
    one.start_base(two.port(), {"--stall-limit", "5"});
    ASSERT_TRUE(wait_until([&] { return two.progress() && two.progress()->step > 0; }));
    one.write("clock_shift", jump);
    two.send_order(one.order(OrderKind::kGrow, "g", 1, "p"), 1);
    ASSERT_TRUE(wait_until([&] { return !two.reports().empty(); }));
    const auto report = two.reports()[0];
    EXPECT_TRUE(report.done) << report.reason;
    EXPECT_GT(report.phases.total, 0) << jump;
    EXPECT_LT(report.phases.total, 90) << jump;
    EXPECT_GE(report.phases.save, 0) << jump;
    EXPECT_EQ(one.launches(), 2) << jump;
  }
}

// scontrol update jobid=… numnodes=1: Slurm kills what runs on the other node.
TEST_F(Run, ANodeThatTheOwnerGivesUpIsNoLongerUsed) {
  const auto shown = [&](const std::string& nodes, const std::string& groups) {
    rig.write("job", "JobId=77 SubmitTime=2026-01-01T00:00:00 NodeList=" + nodes + " " + groups +
                         "Power=\n");
  };
  const std::string here = "Nodes=" + rig.host() + " CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) ";
  rig.write("bin/scontrol",
            "#!/bin/bash\ncase $1 in ping) echo ' UP' ;; *) cat " + rig.file("job") + " ;; esac\n");
  shown(rig.host() + ",localhost",
        "JOB_GRES=gpu:2 " + here + "Nodes=localhost CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) ");
  rig.set_environment("SLURM_JOB_NODELIST", rig.host() + ",localhost");
  start_and_settle();
  ASSERT_EQ(rig.last_size(), 2);
  shown(rig.host(), "JOB_GRES=gpu:1 " + here);
  ::kill(rig.last_trainer(), SIGKILL);
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 2; }));
  EXPECT_EQ(rig.last_size(), 1);
  EXPECT_TRUE(steps_on());
  EXPECT_TRUE(
      wait_until([&] { return controller.registrations().back().allocations.size() == 1; }));
}

TEST_F(Run, AKilledAgentTakesItsTrainerAlongAndTheNextGoesOn) {
  start_and_settle();
  grow();
  const pid_t orphan = rig.last_trainer();
  rig.signal(SIGKILL);
  EXPECT_EQ(rig.wait_exit(), 128 + SIGKILL);
  EXPECT_TRUE(wait_until([&] { return gone(orphan); })) << "mpirun ends with the agent";
  rig.start_base(controller.port());
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 3; }));
  EXPECT_EQ(rig.last_size(), 2) << "the companions are not its own to use before an order";
  // The order that the first one has carried out comes again.
  controller.send_order(rig.order(OrderKind::kGrow, "grow-1", 1, "plan3"), 1);
  EXPECT_TRUE(steps_on());
  std::this_thread::sleep_for(1500ms);  // nothing must happen
  EXPECT_EQ(rig.launches(), 3);
  rig.signal(SIGTERM);
  EXPECT_EQ(rig.wait_exit(), 85);
}

TEST_F(Run, ReportsOfATimeWithoutAControllerComeLater) {
  start_and_settle();
  grow();
  const int port = controller.port();
  controller.stop();
  rig.write("alive", "");
  ::kill(rig.last_trainer(), SIGKILL);
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 3; }));
  EXPECT_TRUE(steps_on());
  FakeController second(0, port);
  second.set_epoch(2);
  // The growth's own may come again: its answer may have been lost when the first one stopped.
  const auto moves = [&] {
    std::vector<protocol::ReportRequest> found;
    for (const auto& report : second.reports()) {
      if (report.order_id.empty()) found.push_back(report);
    }
    return found;
  };
  ASSERT_TRUE(wait_until([&] { return moves().size() >= 2; }));
  EXPECT_EQ(moves()[0].gpus, 2);
  EXPECT_EQ(moves()[1].gpus, 2);
  EXPECT_GT(moves()[1].phases.total, 0);
  std::this_thread::sleep_for(2s);
  EXPECT_LE(second.registrations().size(), 3u) << "no storm";
  EXPECT_EQ(moves().size(), 2u);
}

TEST(RunUsage, BadCommandLinesAreRefused) {
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"run"},
      {"run", "--"},
      {"run", "true"},
      {"run", "--srun-args", "'open", "--", "true"},
      {"run", "--ranks", "0", "--", "true"},
      {"run", "--numerics", "fast", "--", "true"},
      {"companion"},
      {"dance"},
  };
  for (const auto& line : lines) {
    Rig rig;
    rig.start(line, 0);
    EXPECT_EQ(rig.wait_exit(), 64) << ::testing::PrintToString(line);
    EXPECT_FALSE(rig.log().empty());
  }
}

}  // namespace
}  // namespace flextrain::agent
