// SPDX-License-Identifier: GPL-2.0-or-later
// A controller with its threads and its port over a fake cluster.
#pragma once

#include <unistd.h>

#include <thread>

#include "engine_rig.h"
#include "protocol/client.h"
#include "protocol/fake_auth.h"
#include "slurm_plugin/controller/controller.h"

namespace flextrain::slurm_plugin {

using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

inline bool eventually(const std::function<bool()>& condition,
                       milliseconds limit = milliseconds(20000)) {
  const auto end = Steady::now() + limit;
  while (Steady::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return condition();
}

// Owned by the test, lent to the controller.
class Lent : public Cluster {
 public:
  explicit Lent(FakeCluster& inner) : inner_(inner) {}
  Result<ClusterView> observe() override { return inner_.observe(); }
  Result<JobRecord> job(uint32_t id) override { return inner_.job(id); }
  Result<uint32_t> submit_companion(const CompanionRequest& r) override {
    return inner_.submit_companion(r);
  }
  Status cancel(uint32_t id) override { return inner_.cancel(id); }
  Status set_time_limit(uint32_t id, int64_t s) override { return inner_.set_time_limit(id, s); }
  Status set_admin_comment(uint32_t id, const std::string& t) override {
    return inner_.set_admin_comment(id, t);
  }
  std::string cluster_name() const override { return inner_.cluster_name(); }

 private:
  FakeCluster& inner_;
};

class ControllerTest : public ::testing::Test {
 protected:
  ControllerTest() {
    config.database_path = folder_.path("state/db");
    config.endpoint_address = "127.0.0.1";
    config.endpoint_port = 0;
    config.tick_seconds = 3600;  // rounds come from wake() alone
    config.policy.gate = policy::Gate::kNone;
    cluster.add_partition("gpu");
    for (const char* node : {"n1", "n2", "n3"}) cluster.add_node(node, 8);
  }
  ~ControllerTest() override { controller.reset(); }
  ControllerDependencies dependencies() {
    ControllerDependencies d;
    d.make_cluster = [this]() -> Result<std::unique_ptr<Cluster>> {
      return std::unique_ptr<Cluster>(new Lent(cluster));
    };
    d.clock = [this] { return cluster.now(); };
    d.auth = std::make_shared<protocol::FakeAuthenticator>(::geteuid(), ::getegid());
    d.config_file = "/etc/slurm/flextrain.conf";
    return d;
  }
  void start() {
    auto made = Controller::create(config, dependencies());
    ASSERT_TRUE(made.ok());
    controller = std::move(made).value();
    ASSERT_TRUE(controller->start().ok());
    ASSERT_TRUE(eventually([&] { return controller->port() != 0; }));
  }
  Result<protocol::Envelope> call(std::string_view type, uid_t uid, Json body,
                                  protocol::JobIdentity job = {}) {
    protocol::ClientOptions options;
    options.hosts = {{"127.0.0.1", controller->port()}};
    options.controller_uid = ::geteuid();
    auto client = protocol::make_client(
        options, std::make_shared<protocol::FakeAuthenticator>(uid, static_cast<gid_t>(uid)));
    if (!client.ok()) return client.status();
    protocol::Envelope request;
    request.type = type;
    request.job = std::move(job);
    request.body = std::move(body);
    return (*client)->call(std::move(request));
  }
  uint32_t submit(bool elastic) {
    JobRecord job;
    job.user_id = job.group_id = 1001;
    job.user_name = "a";
    job.name = "job";
    job.partition = "gpu";
    job.gpus_requested = job.cpus_requested = 8;
    job.tres_per_node = "gres:gpu:8";
    if (elastic) job.admin_comment = protocol::elastic_token({});
    return cluster.submit(job);
  }
  Json diag() {
    const auto answer = call(protocol::kQuery, 1001,
                             protocol::to_json(protocol::QueryRequest{"diag", Json::object()}));
    return answer.ok() ? answer->body.at("rows").at(0) : Json::object();
  }

  TempFolder folder_;
  ControllerConfig config;
  FakeCluster cluster{1'000'000};
  std::unique_ptr<Controller> controller;
};

}  // namespace flextrain::slurm_plugin
