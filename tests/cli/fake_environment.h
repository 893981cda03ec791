// SPDX-License-Identifier: MIT
// An outside world made of maps.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "cli/app.h"
#include "cli/environment.h"

namespace flextrain::cli {

class FakeEnvironment : public Environment {
 public:
  Result<Json> query(const protocol::QueryRequest& request) override {
    asked.push_back(request);
    const auto found = answers.find(request.what);
    if (found == answers.end()) return unavailable("the controller cannot be asked at ctl:6822");
    return found->second;
  }
  Result<Json> command(const protocol::CommandRequest& request) override {
    commanded.push_back(request);
    if (!command_answer.ok()) return command_answer;
    return Json{{"message", "done as told"}};
  }
  int64_t now() override { return time; }
  std::string user() override { return "anna"; }
  bool is_root() override { return root; }
  Result<CommandResult> run(const std::vector<std::string>& argv) override {
    std::string line;
    for (const std::string& argument : argv) line += (line.empty() ? "" : " ") + argument;
    const auto found = commands.find(line);
    if (found == commands.end()) return not_found("{} is not in PATH", argv[0]);
    return found->second;
  }
  Result<std::string> read_file(const std::string& path) override {
    const auto found = files.find(path);
    if (found == files.end()) return not_found("{} does not exist", path);
    return found->second;
  }
  FileFacts file(const std::string& path) override {
    if (const auto known = facts.find(path); known != facts.end()) return known->second;
    FileFacts made;
    made.exists = made.readable = files.count(path) != 0;
    return made;
  }
  Status munge_round_trip(const std::string&) override { return munge; }
  std::string variable(const std::string& name) override {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  }

  Result<std::string> standard_input() override { return read_file("-"); }
  Status write_file(const std::string& path, const std::string& content) override {
    files[path] = content;
    return {};
  }
  void progress(double share) override { shown = share; }

  double shown = -1;  // the newest progress
  std::map<std::string, Json> answers;
  std::vector<protocol::QueryRequest> asked;
  std::vector<protocol::CommandRequest> commanded;
  Status command_answer;
  int64_t time = 1'764'440'000;
  bool root = false;
  std::map<std::string, CommandResult> commands;
  std::map<std::string, std::string> files, variables;
  std::map<std::string, FileFacts> facts;
  Status munge;
};

}  // namespace flextrain::cli
