// SPDX-License-Identifier: MIT
// The agents of many elastic jobs in one process, for bench/scale_bench.sh: each registers, sends
// its scale table, keeps a poll open and tells its progress as flextrain-agent does, over the same
// client. They train nothing; an order is refused, so that sizes stay what they are.
//   scale_agents PROGRESS_SECONDS < "JOB SUBMIT_TIME NODE GPUS" lines
// Run as root where munge and slurm.conf are. Prints a line when all have registered; ends on
// SIGTERM, with 1 when more than one call in a hundred failed (one munged serves all of them here).
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "protocol/client.h"

using namespace flextrain;
using namespace flextrain::protocol;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

struct Agent {
  JobIdentity identity;
  std::string node;
  int gpus = 0;
  std::atomic<int64_t> epoch{0};
  std::atomic<bool> registered{false};
  std::atomic<int> pace{0}, poll_seconds{25};  // the controller's wishes
  std::atomic<Clock::duration> told{};         // the last progress, since Clock's epoch
};

std::atomic<int> registrations{0}, failures{0}, answers{0};
const Clock::time_point began = Clock::now();

Json scale_table(int base) {
  Json entries = Json::array();
  for (int gpus = base; gpus <= 4 * base; gpus += base) {
    entries.push_back({{"shape", {{"gpus", gpus}}},
                       {"plan", {{"id", fmt::format("plan-{}", gpus)}, {"gpus", gpus}}},
                       {"tokens_per_second", 90.0 * gpus},
                       {"kept", true}});
  }
  return {{"version", 1}, {"entries", entries}};
}

template <typename Message>
Result<Envelope> send(Client& client, Agent& agent, std::string_view type, const Message& message,
                      milliseconds timeout = milliseconds(30'000)) {
  auto answer = client.call(make_request(type, agent.identity, agent.epoch, message), timeout);
  if (answer.ok()) {
    agent.epoch = answer->controller_epoch;
    ++answers;
  } else {
    if (failures++ == 0) fmt::print(stderr, "{}: {}\n", type, answer.status().to_string());
    agent.registered = false;
  }
  return answer;
}

bool introduce(Client& client, Agent& agent) {
  RegisterRequest request;
  request.allocations = {{agent.identity.job_id, agent.node, agent.gpus, ""}};
  request.fingerprint = "bench";
  request.agent_version = "scale_agents";
  request.agent_path = "/bin/false";
  request.work_dir = "/tmp";
  request.environment = {{"PATH", "/usr/bin:/bin"}};
  agent.epoch = 0;
  const auto answer = send(client, agent, kRegister, request);
  if (!answer.ok()) return false;
  const auto body = from_json<RegisterResponse>(answer->body);
  if (!body.ok() || !body->elastic) {
    fmt::print(stderr, "job {} is not elastic: {}\n", agent.identity.job_id,
               body.ok() ? body->reason : body.status().to_string());
    return false;
  }
  if (!send(client, agent, kScaleTable, ScaleTableRequest{scale_table(agent.gpus), Json::object()})
           .ok()) {
    return false;
  }
  agent.poll_seconds = body->poll_seconds;
  agent.pace = body->progress_seconds;
  agent.registered = true;
  ++registrations;
  return true;
}

ProgressRequest progress_of(const Agent& agent) {
  ProgressRequest progress;
  progress.step =
      1 + std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - began).count();
  progress.total_steps = 100'000'000;
  progress.loss = 2.5;
  progress.tokens_per_second = 90.0 * agent.gpus;
  progress.step_seconds = 1;
  progress.gpus = agent.gpus;
  progress.plan_id = fmt::format("plan-{}", agent.gpus);
  progress.state = kTrainerRunning;
  return progress;
}

void poll_for_ever(const ClientOptions& options, const std::shared_ptr<Authenticator>& auth,
                   Agent& agent) {
  auto client = make_client(options, auth);
  if (!client.ok()) return;
  int64_t sequence = 0;
  for (;;) {
    if (!agent.registered && !introduce(**client, agent)) {
      std::this_thread::sleep_for(milliseconds(2000));
      continue;
    }
    agent.told = Clock::now().time_since_epoch();
    const auto answer = send(**client, agent, kPoll, PollRequest{sequence, progress_of(agent)},
                             milliseconds(1000 * (agent.poll_seconds + 30)));
    if (!answer.ok()) continue;
    const auto order = from_json<Order>(answer->body);
    if (!order.ok()) continue;
    agent.pace = order->progress_seconds;
    if (order->kind == OrderKind::kNone) continue;
    sequence = answer->sequence;
    ReportRequest report;
    report.order_id = order->order_id;
    report.reason = "scale_agents trains nothing";
    report.gpus = agent.gpus;
    report.allocations = {{agent.identity.job_id, agent.node, agent.gpus, ""}};
    (void)send(**client, agent, kReport, report);
  }
}

// The progress of every `stride`th agent from `first`, each once per interval at most: seldom where
// the controller wishes so, and not while a poll has told it.
void tell_progress(const ClientOptions& options, const std::shared_ptr<Authenticator>& auth,
                   std::vector<std::unique_ptr<Agent>>& agents, size_t first, size_t stride,
                   double interval) {
  auto client = make_client(options, auth);
  if (!client.ok()) return;
  auto next = Clock::now();
  for (;;) {
    const size_t mine = (agents.size() - first + stride - 1) / stride;
    for (size_t i = first; i < agents.size(); i += stride) {
      next += std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(interval / static_cast<double>(mine)));
      std::this_thread::sleep_until(next);
      Agent& agent = *agents[i];
      const auto now = Clock::now().time_since_epoch();
      if (!agent.registered || now - agent.told.load() < std::chrono::seconds(agent.pace)) continue;
      agent.told = now;
      (void)send(**client, agent, kProgress, progress_of(agent));
    }
    if (const auto now = Clock::now(); next < now) next = now;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: scale_agents PROGRESS_SECONDS < jobs\n");
    return 64;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const double interval = std::max(0.1, std::atof(argv[1]));
  const auto location = discover_controller();
  const auto auth = make_munge_authenticator();
  if (!location.ok() || !auth.ok()) {
    fmt::print(stderr, "{} {}\n", location.status().to_string(), auth.status().to_string());
    return 1;
  }
  ClientOptions options;
  options.hosts = location->hosts;
  options.controller_uid = location->slurm_uid;
  std::vector<std::unique_ptr<Agent>> agents;
  uint32_t job = 0;
  int64_t submit = 0;
  std::string node;
  for (int gpus = 0; std::cin >> job >> submit >> node >> gpus;) {
    agents.push_back(std::make_unique<Agent>());
    agents.back()->identity = {location->cluster, job, submit, 0};
    agents.back()->node = node;
    agents.back()->gpus = gpus;
  }
  // Ended by the process's end: a poll may be open for half a minute.
  for (auto& agent : agents) {
    std::thread(poll_for_ever, options, *auth, std::ref(*agent)).detach();
  }
  constexpr size_t kSenders = 8;
  for (size_t i = 0; i < std::min(kSenders, agents.size()); ++i) {
    std::thread(tell_progress, options, *auth, std::ref(agents), i,
                std::min(kSenders, agents.size()), interval)
        .detach();
  }
  const timespec wait{0, 200'000'000};
  bool told = false;
  while (sigtimedwait(&ends, nullptr, &wait) < 0) {
    if (told || registrations < static_cast<int>(agents.size())) continue;
    told = true;
    fmt::print("{} agents registered\n", agents.size());
    std::fflush(stdout);
  }
  fmt::print("{} answers, {} failures\n", answers.load(), failures.load());
  std::fflush(stdout);
  std::_Exit(100 * failures <= answers ? 0 : 1);
}
