// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>

#include "protocol/fake_auth.h"
#include "rig.h"

namespace flextrain::agent {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const std::vector<std::string> kWords = {"companion", "--base-job", "77", "--intent", "i1"};

std::vector<std::string> with(std::vector<std::string> more) {
  std::vector<std::string> words = kWords;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Companion, RegistersAndIsReleased) {
  Rig rig;
  FakeController controller;
  rig.set_environment("SLURM_JOB_ID", "900");
  rig.start(with({"--", "/bin/echo", "fp of this node"}), controller.port());
  ASSERT_TRUE(wait_until([&] { return !controller.registrations().empty(); }));
  const auto registration = controller.registrations()[0];
  EXPECT_EQ(registration.role, protocol::AgentRole::kCompanion);
  EXPECT_EQ(registration.base_job_id, 77u);
  EXPECT_EQ(registration.intent_id, "i1");
  EXPECT_EQ(registration.fingerprint, "fp of this node");
  EXPECT_EQ(registration.allocations,
            (std::vector<protocol::Allocation>{{900, rig.host(), 2, ""}}));
  EXPECT_EQ(controller.identities()[0].job_id, 900u);
  protocol::Order order;
  order.kind = protocol::OrderKind::kRelease;
  controller.send_order(order, 1);
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_TRUE(wait_until([&] { return controller.bye().has_value(); }));
}

TEST(Companion, AFingerprintThatCannotBeHadEndsIt) {
  Rig rig;
  FakeController controller;
  rig.start(with({"--fingerprint-cmd", "exit 3"}), controller.port());
  EXPECT_EQ(rig.wait_exit(), 1);
  EXPECT_THAT(rig.log(), HasSubstr("exit code 3"));
  EXPECT_TRUE(controller.registrations().empty());
}

TEST(Companion, NotWantedEndsIt) {
  Rig rig;
  FakeController controller;
  controller.set_registration(
      {.reason = "job 77 has no companion 900", .elastic_mode = "", .poll_seconds = 1});
  rig.start(kWords, controller.port());
  EXPECT_EQ(rig.wait_exit(), 1);
  EXPECT_THAT(rig.log(), HasSubstr("no companion 900"));
}

TEST(Companion, TheLeaseEndsItWhenNobodySpeaks) {
  Rig rig;
  const auto begin = std::chrono::steady_clock::now();
  rig.start(with({"--lease", "2"}), 1);
  EXPECT_EQ(rig.wait_exit(), 1);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 2s);
  EXPECT_THAT(rig.log(), HasSubstr("lease"));
}

TEST(Companion, TheControllersLeaseCounts) {
  Rig rig;
  FakeController controller;
  controller.set_registration({.elastic = true,
                               .reason = "",
                               .max_gpus = 8,
                               .elastic_mode = "dp+pp",
                               .poll_seconds = 1,
                               .lease_seconds = 3});
  rig.start(kWords, controller.port());
  ASSERT_TRUE(wait_until([&] { return !controller.registrations().empty(); }));
  std::this_thread::sleep_for(4s);  // polls are words of the controller
  EXPECT_TRUE(rig.running());
  controller.stop();
  EXPECT_EQ(rig.wait_exit(), 1);
}

TEST(Companion, ASignalOfSlurmsGoesToTheBaseAgent) {
  Rig rig;
  FakeController controller;
  std::mutex mutex;
  protocol::ReplyPtr pending;
  std::atomic<int> notices{0};
  protocol::EndpointOptions options;
  options.bind_address = "127.0.0.1";
  options.port = 0;
  auto base = std::move(*protocol::EndpointServer::start(
      options, std::make_shared<protocol::FakeAuthenticator>(::getuid(), ::getgid()),
      [&](const protocol::Envelope& request, const protocol::Caller& caller,
          const protocol::ReplyPtr& reply) {
        EXPECT_EQ(request.type, protocol::kNotice);
        EXPECT_EQ(caller.uid, ::getuid());
        EXPECT_EQ(protocol::from_json<protocol::NoticeRequest>(request.body)->job_id, 900u);
        const std::lock_guard lock(mutex);
        pending = reply;
        ++notices;
      }));
  rig.set_environment("SLURM_JOB_ID", "900");
  rig.set_environment(protocol::kNoticeAddressVariable,
                      "127.0.0.1:" + std::to_string(base->port()));
  rig.start(kWords, controller.port());
  ASSERT_TRUE(wait_until([&] { return !controller.registrations().empty(); }));
  rig.signal(SIGUSR1);
  ASSERT_TRUE(wait_until([&] { return notices == 1; }));
  rig.signal(SIGUSR1);
  std::this_thread::sleep_for(500ms);  // it must hold on until the trainer has left
  EXPECT_TRUE(rig.running());
  EXPECT_EQ(notices, 1);
  {
    const std::lock_guard lock(mutex);
    pending->send({});
  }
  EXPECT_EQ(rig.wait_exit(), 0);
  EXPECT_TRUE(wait_until([&] { return controller.bye().has_value(); }));
  EXPECT_THAT(controller.bye()->reason, HasSubstr("called back by Slurm"));
}

}  // namespace
}  // namespace flextrain::agent
