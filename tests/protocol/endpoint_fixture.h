// SPDX-License-Identifier: MIT
// What the endpoint's tests share: a server with fake credentials, clients, and raw connections.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/text.h"
#include "protocol/client.h"
#include "protocol/endpoint_server.h"
#include "protocol/fake_auth.h"

namespace flextrain::protocol {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

inline constexpr uid_t kSlurm = 64030;

inline std::shared_ptr<Authenticator> user(uid_t uid) {
  return std::make_shared<FakeAuthenticator>(uid, uid);
}

inline Handler echo() {
  return [](const Envelope& request, const Caller& caller, const ReplyPtr& reply) {
    Envelope response;
    response.body = {{"uid", caller.uid}, {"body", request.body}};
    reply->send(response);
  };
}

inline std::unique_ptr<EndpointServer> start(Handler handler, EndpointOptions options = {},
                                             uid_t uid = kSlurm) {
  options.bind_address = "127.0.0.1";
  options.port = 0;
  auto server = EndpointServer::start(options, user(uid), std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status().to_string();
  return std::move(*server);
}

inline std::unique_ptr<Client> client(int port, uid_t uid = 1001) {
  ClientOptions options;
  options.hosts = {{"127.0.0.1", port}};
  options.controller_uid = kSlurm;
  options.timeout = 60s;
  return std::move(*make_client(options, user(uid)));
}

inline Envelope request(std::string type = "query") {
  Envelope m;
  m.type = std::move(type);
  m.body = {{"what", "jobs"}};
  return m;
}

// From `source`, any address of 127.0.0.0/8.
inline int connect_raw(int port, const std::string& source = "127.0.0.1") {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in own{};
  own.sin_family = AF_INET;
  ::inet_pton(AF_INET, source.c_str(), &own.sin_addr);
  const int one = 1;  // the port is chosen at the connect: there are many per peer
  ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0) {
    ::close(fd);
    return -1;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

inline void send_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

// Everything until the peer closes, or what came within `limit`.
inline std::string read_all(int fd, std::chrono::milliseconds limit = 5s, bool* closed = nullptr) {
  std::string text;
  const auto end = Clock::now() + limit;
  char buffer[4096];
  if (closed != nullptr) *closed = false;
  while (Clock::now() < end) {
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, 50) <= 0) continue;
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) {
      if (closed != nullptr) *closed = true;
      break;
    }
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

inline std::string http_post(std::string_view path, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path,
                     body.size(), body);
}

inline std::string raw_exchange(int port, std::string_view text) {
  const int fd = connect_raw(port);
  send_text(fd, text);
  std::string answer = read_all(fd);
  ::close(fd);
  return answer;
}

// Keeps polls until the test answers them.
struct Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ReplyPtr> replies;
  Handler handler() {
    return [this](const Envelope&, const Caller&, const ReplyPtr& reply) {
      const std::lock_guard lock(mutex);
      replies.push_back(reply);
      changed.notify_all();
    };
  }
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, [&] { return replies.size() >= count; });
  }
};

}  // namespace flextrain::protocol
