// SPDX-License-Identifier: MIT
// cli: the program sflex. It asks the controller (protocol's client) and, for `doctor`, Slurm's own
// commands; it reads no database and writes nothing.
//
// This interface is all of the outside world that sflex sees, so that tests can be it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "protocol/messages.h"

namespace flextrain::cli {

struct CommandResult {
  int exit_code = 0;
  std::string output;  // stdout and stderr together
};

struct FileFacts {
  bool exists = false, readable = false;
  unsigned mode = 0, owner = 0;  // st_mode & 07777, uid
  int64_t size = 0;
  int64_t free_bytes = 0;  // for us on its file system
};

class Environment {
 public:
  virtual ~Environment() = default;
  // The body of the controller's response. kUnavailable when it cannot be reached, with one line
  // that says where it was looked for; the controller's own refusals come in its words.
  virtual Result<Json> query(const protocol::QueryRequest& request) = 0;
  // The same for a command; "" in the response's "message" is no answer.
  virtual Result<Json> command(const protocol::CommandRequest& request) = 0;
  virtual int64_t now() = 0;       // unix seconds
  virtual std::string user() = 0;  // name of the caller
  virtual bool is_root() = 0;
  // For doctor. argv[0] is looked up in PATH; kNotFound when it is not there.
  virtual Result<CommandResult> run(const std::vector<std::string>& argv) = 0;
  virtual Result<std::string> read_file(const std::string& path) = 0;
  virtual FileFacts file(const std::string& path) = 0;
  virtual Status munge_round_trip(const std::string& socket) = 0;  // "" = default socket
  virtual std::string variable(const std::string& name) = 0;       // "" when unset
  // For simulate.
  virtual Result<std::string> standard_input() = 0;
  virtual Status write_file(const std::string& path, const std::string& content) = 0;
  virtual void progress(double share) = 0;  // a bar, where somebody looks
};

}  // namespace flextrain::cli
