// SPDX-License-Identifier: MIT
// What the agent's tests share: a folder with fake Slurm commands, a fake controller, and the agent
// program started in it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "protocol/endpoint_server.h"
#include "protocol/messages.h"

namespace flextrain::agent {

inline constexpr std::chrono::seconds kPatience{90};  // the machine may be busy

bool wait_until(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = kPatience);
bool gone(pid_t pid);  // or a zombie, which is its parent's business

// Keeps the protocol's word for one base and its companions; remembers all it is told.
class FakeController {
 public:
  explicit FakeController(uid_t uid = 0, int port = 0);
  int port() const { return server_->port(); }
  void stop() { server_->stop(); }

  // What tests set.
  void set_epoch(int64_t epoch);
  void set_registration(protocol::RegisterResponse response);
  void send_order(protocol::Order order, int64_t sequence);  // to the next (or waiting) poll

  // What it was told.
  std::vector<protocol::RegisterRequest> registrations();
  std::vector<protocol::ReportRequest> reports();
  std::optional<protocol::ProgressRequest> progress();  // the newest, by itself or with a poll
  std::vector<std::string> progress_states();           // of those that came by themselves
  int polls_with_progress();
  std::optional<protocol::ByeRequest> bye();
  int tables();
  std::vector<protocol::JobIdentity> identities();

 private:
  void handle(const protocol::Envelope& request, const protocol::Caller& caller,
              const protocol::ReplyPtr& reply);
  void deliver();

  std::mutex mutex_;
  int64_t epoch_ = 1;
  bool registered_ = false;
  protocol::RegisterResponse registration_;
  std::optional<std::pair<protocol::Order, int64_t>> order_;
  protocol::ReplyPtr parked_;
  std::vector<protocol::RegisterRequest> registrations_;
  std::vector<protocol::ReportRequest> reports_;
  std::vector<protocol::JobIdentity> identities_;
  std::optional<protocol::ProgressRequest> progress_;
  std::vector<std::string> progress_states_;
  int polls_with_progress_ = 0;
  std::optional<protocol::ByeRequest> bye_;
  int tables_ = 0;
  std::unique_ptr<protocol::EndpointServer> server_;
};

// A working folder with fake srun, squeue and scontrol, and the agent's process.
class Rig {
 public:
  Rig();
  ~Rig();

  std::string file(const std::string& name) const { return dir_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;  // "" = absent
  void remove(const std::string& name) const;

  // `words` after the program; FLEXTRAIN_CONTROLLER is set when port > 0.
  void start(const std::vector<std::string>& words, int port);
  void start_base(int port, std::vector<std::string> options = {});
  // "" unsets.
  void set_environment(const std::string& name, const std::string& value) {
    environment_[name] = value;
  }
  void signal(int number) const;
  int wait_exit();  // -1 when it did not end in time
  bool running();
  std::string log() const { return read("agent.log"); }

  const std::string& host() const { return host_; }
  int launches() const;        // of the trainer
  pid_t last_trainer() const;  // rank 0 of the last launch
  int last_size() const;       // its number of ranks
  protocol::Order order(protocol::OrderKind kind, const std::string& id, int companion_gpus,
                        const std::string& plan_id, uint32_t companion = 900) const;

 private:
  std::string dir_, host_;
  std::map<std::string, std::string> environment_;
  pid_t pid_ = -1;
};

}  // namespace flextrain::agent
