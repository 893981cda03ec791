// SPDX-License-Identifier: MIT
#include "rig.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "protocol/fake_auth.h"

namespace flextrain::agent {

using namespace std::chrono_literals;

bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

bool gone(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return true;
  return text[text.rfind(')') + 2] == 'Z';
}

FakeController::FakeController(uid_t uid, int port) {
  registration_.elastic = true;
  registration_.max_gpus = 8;
  registration_.elastic_mode = "dp+pp";
  registration_.poll_seconds = 1;
  registration_.lease_seconds = 300;
  protocol::EndpointOptions options;
  options.bind_address = "127.0.0.1";
  options.port = port;
  server_ = std::move(*protocol::EndpointServer::start(
      options, std::make_shared<protocol::FakeAuthenticator>(uid, uid),
      [this](const protocol::Envelope& request, const protocol::Caller& caller,
             const protocol::ReplyPtr& reply) { handle(request, caller, reply); }));
}

void FakeController::handle(const protocol::Envelope& request, const protocol::Caller&,
                            const protocol::ReplyPtr& reply) {
  const std::lock_guard lock(mutex_);
  protocol::Envelope response;
  response.controller_epoch = epoch_;
  response.body = Json::object();
  identities_.push_back(request.job);
  if (request.type == protocol::kRegister) {
    registrations_.push_back(*protocol::from_json<protocol::RegisterRequest>(request.body));
    registered_ = true;
    response.body = to_json(registration_);
  } else if (!registered_ && request.type != protocol::kBye) {
    response.error = "not registered: register again";
  } else if (request.type == protocol::kPoll) {
    parked_ = reply;
    protocol::Envelope none = response;
    protocol::Order no_order;
    no_order.progress_seconds = registration_.progress_seconds;
    none.body = to_json(no_order);
    const auto poll = *protocol::from_json<protocol::PollRequest>(request.body);
    if (poll.progress) {
      progress_ = poll.progress;
      ++polls_with_progress_;
    }
    reply->send_after(std::chrono::seconds(registration_.poll_seconds), none);
    deliver();
    return;
  } else if (request.type == protocol::kReport) {
    reports_.push_back(*protocol::from_json<protocol::ReportRequest>(request.body));
  } else if (request.type == protocol::kProgress) {
    progress_ = *protocol::from_json<protocol::ProgressRequest>(request.body);
    progress_states_.push_back(progress_->state);
  } else if (request.type == protocol::kScaleTable) {
    ++tables_;
  } else if (request.type == protocol::kBye) {
    bye_ = *protocol::from_json<protocol::ByeRequest>(request.body);
  }
  reply->send(response);
}

void FakeController::deliver() {
  if (!order_ || !parked_) return;
  protocol::Envelope response;
  response.controller_epoch = epoch_;
  response.sequence = order_->second;
  response.body = to_json(order_->first);
  // A poll that just timed out does not take it: the next one will.
  if (parked_->send(response)) order_.reset();
  parked_.reset();
}

void FakeController::send_order(protocol::Order order, int64_t sequence) {
  const std::lock_guard lock(mutex_);
  order_ = {std::move(order), sequence};
  deliver();
}

void FakeController::set_epoch(int64_t epoch) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  registered_ = false;
}

void FakeController::set_registration(protocol::RegisterResponse response) {
  const std::lock_guard lock(mutex_);
  registration_ = std::move(response);
}

#define GETTER(type, name)              \
  type FakeController::name() {         \
    const std::lock_guard lock(mutex_); \
    return name##_;                     \
  }
GETTER(std::vector<protocol::RegisterRequest>, registrations)
GETTER(std::vector<protocol::ReportRequest>, reports)
GETTER(std::optional<protocol::ProgressRequest>, progress)
GETTER(std::optional<protocol::ByeRequest>, bye)
GETTER(int, tables)
GETTER(int, polls_with_progress)
GETTER(std::vector<std::string>, progress_states)
GETTER(std::vector<protocol::JobIdentity>, identities)
#undef GETTER

Rig::Rig() {
  char folder[] = "/tmp/flextrain-agent.XXXXXX";
  EXPECT_NE(::mkdtemp(folder), nullptr);
  dir_ = folder;
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  host_ = name;
  std::filesystem::create_directory(dir_ + "/bin");
  // Two GPUs for every step of another job, as Slurm would number them there.
  write("bin/srun", R"(#!/bin/bash
while [ "${1#--}" != "$1" ]; do
  case $1 in --jobid=*) export FAKE_SRUN_JOB=${1#--jobid=} ;; esac
  shift
done
export CUDA_VISIBLE_DEVICES=10,11 SLURM_JOB_ID=$FAKE_SRUN_JOB
exec "$@"
)");
  write("bin/squeue", "#!/bin/bash\ncat " + file("alive") + "\n");
  write("bin/scontrol", fmt::format(R"(#!/bin/bash
case "$1" in
  ping) echo 'Slurmctld(primary) at ctl is UP' ;;
  show) echo "JobId=$5 JobName=x SubmitTime=2026-01-01T00:00:00 JOB_GRES=gpu:2 Nodes={} CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1) Power=" ;;
esac
)",
                                    host_));
  for (const char* program : {"srun", "squeue", "scontrol"}) {
    ::chmod(file(std::string("bin/") + program).c_str(), 0755);
  }
  write("slurm.conf", "ClusterName=fake\nSlurmctldHost=127.0.0.1\nSlurmUser=root\n");
  write("alive", "900\n901\n");
  environment_ = {{"PATH", dir_ + "/bin:" + ::getenv("PATH")},
                  {"SLURM_CONF", dir_ + "/slurm.conf"},
                  {"SLURM_JOB_ID", "77"},
                  {"SLURM_CLUSTER_NAME", "fake"},
                  {"SLURM_JOB_NODELIST", host_},
                  {"SLURMD_NODENAME", host_},
                  {"SLURM_GPUS_ON_NODE", "2"},
                  {"CUDA_VISIBLE_DEVICES", "4,5"},
                  {"TMPDIR", dir_},
                  {"HOME", dir_}};
}

Rig::~Rig() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (::testing::Test::HasFailure()) std::cerr << "--- agent.log\n" << log();
  // Trainers of a killed agent end with their mpirun; they may write a moment longer.
  for (int i = 0; i < 20; ++i) {
    std::error_code error;
    std::filesystem::remove_all(dir_, error);
    if (!error) break;
    std::this_thread::sleep_for(100ms);
  }
}

void Rig::write(const std::string& name, const std::string& text) const {
  std::ofstream(file(name)) << text;
}

std::string Rig::read(const std::string& name) const {
  std::ifstream in(file(name));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void Rig::remove(const std::string& name) const { ::unlink(file(name).c_str()); }

void Rig::start(const std::vector<std::string>& words, int port) {
  if (port > 0) environment_["FLEXTRAIN_CONTROLLER"] = fmt::format("127.0.0.1:{}", port);
  pid_ = ::fork();
  if (pid_ != 0) return;
  (void)!::chdir(dir_.c_str());
  const int log = ::open("agent.log", O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(log, 1);
  ::dup2(log, 2);
  for (const auto& [name, value] : environment_) {
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> argv = {const_cast<char*>(AGENT_UNDER_TEST)};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

void Rig::start_base(int port, std::vector<std::string> options) {
  std::vector<std::string> words = {"run", "--restart-delay", "0.1"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--fingerprint-cmd", "echo fake-fingerprint", "--", FAKE_TRAINER});
  start(words, port);
}

void Rig::signal(int number) const { ::kill(pid_, number); }

bool Rig::running() {
  return pid_ > 0 && ::kill(pid_, 0) == 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0;
}

int Rig::wait_exit() {
  int status = 0;
  const bool ended = wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Rig::launches() const {
  const std::string text = read("launches");
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

pid_t Rig::last_trainer() const {
  std::istringstream lines(read("launches"));
  std::string line;
  pid_t pid = 0;
  while (std::getline(lines, line)) pid = std::atoi(line.c_str());
  return pid;
}

int Rig::last_size() const {
  std::istringstream lines(read("launches"));
  std::string line, last;
  while (std::getline(lines, line)) last = line;
  int pid = 0, size = 0;
  std::istringstream(last) >> pid >> size;
  return size;
}

protocol::Order Rig::order(protocol::OrderKind kind, const std::string& id, int companion_gpus,
                           const std::string& plan_id, uint32_t companion) const {
  protocol::Order order;
  order.kind = kind;
  order.order_id = id;
  order.allocations = {{77, host_, 2, ""}};
  if (companion_gpus > 0) order.allocations.push_back({companion, host_, companion_gpus, ""});
  order.plan = {{"version", 1}, {"id", plan_id}};
  order.timeout_seconds = 60;
  return order;
}

}  // namespace flextrain::agent
