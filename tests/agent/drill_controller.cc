// SPDX-License-Identifier: MIT
// A controller driven by hand, for the end-to-end tests of the agent alone: real munge, no policy.
//   drill_controller PORT FOLDER
// Appends every message to FOLDER/messages as one JSON line; delivers FOLDER/order-JOB (an Order's
// JSON, renamed into place) to that job's next poll and removes it.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/file.h"
#include "protocol/endpoint_server.h"

using namespace flextrain;
using namespace flextrain::protocol;

namespace {

std::mutex mutex;
std::map<uint32_t, ReplyPtr> parked;
int64_t sequence = 0;
std::FILE* messages = nullptr;

void handle(const Envelope& request, const Caller& caller, const ReplyPtr& reply) {
  const std::lock_guard lock(mutex);
  Envelope response;
  response.controller_epoch = 1;
  response.body = Json::object();
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const Json line = {{"time", now},
                     {"type", request.type},
                     {"uid", caller.uid},
                     {"job", request.job.job_id},
                     {"submit", request.job.submit_time},
                     {"body", request.body}};
  if (request.type != kPoll) {
    fmt::print(messages, "{}\n", line.dump());
    std::fflush(messages);
  }
  if (request.type == kRegister) {
    RegisterResponse answer;
    answer.elastic = true;
    answer.max_gpus = 16;
    answer.elastic_mode = "dp+pp";
    answer.poll_seconds = 5;
    answer.lease_seconds = 60;
    response.body = to_json(answer);
  } else if (request.type == kPoll) {
    parked[request.job.job_id] = reply;
    Envelope none = response;
    none.body = to_json(Order{});
    reply->send_after(std::chrono::seconds(5), none);
    return;
  }
  reply->send(response);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const std::string folder = argv[2];
  messages = std::fopen((folder + "/messages").c_str(), "ae");
  if (messages == nullptr) return 1;
  EndpointOptions options;
  options.port = std::atoi(argv[1]);
  const auto auth = make_munge_authenticator();
  if (!auth.ok()) return 1;
  const auto server = EndpointServer::start(options, *auth, &handle);
  if (!server.ok()) {
    fmt::print(stderr, "{}\n", server.status().to_string());
    return 1;
  }
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::lock_guard lock(mutex);
    for (auto& [job, reply] : parked) {
      const std::string path = fmt::format("{}/order-{}", folder, job);
      if (reply == nullptr || reply->answered() || ::access(path.c_str(), F_OK) != 0) continue;
      const auto text = read_file(path);
      if (!text.ok()) continue;
      const auto json = parse_json(*text, path);
      if (!json.ok()) continue;
      Envelope response;
      response.controller_epoch = 1;
      response.sequence = ++sequence;
      response.body = *json;
      if (reply->send(response)) ::unlink(path.c_str());
      reply.reset();
    }
  }
}
