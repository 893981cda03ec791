// SPDX-License-Identifier: MIT
// The client's side: who may answer, and what becomes of hosts that do not.
#include <atomic>
#include <ctime>
#include <functional>
#include <thread>

#include "tests/protocol/endpoint_fixture.h"

namespace flextrain::protocol {
namespace {

// A server that answers with whatever the test wants.
int answer_once(const std::function<std::string(std::string)>& answer, std::thread& thread,
                const std::string& head = "HTTP/1.1 200 OK\r\n") {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  thread = std::thread([listener, answer, head] {
    const int fd = ::accept(listener, nullptr, nullptr);
    std::string text;
    char buffer[65536];
    while (true) {  // headers, then the body by its length
      const size_t end = text.find("\r\n\r\n");
      if (end != std::string::npos) {
        const size_t at = text.find("Content-Length: ");
        const size_t length = std::stoul(text.substr(at + 16));
        if (text.size() >= end + 4 + length) break;
      }
      const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    const std::string body = answer(text.substr(text.find("\r\n\r\n") + 4));
    send_text(fd, fmt::format("{}Content-Length: {}\r\n\r\n{}", head, body.size(), body));
    ::close(fd);
    ::close(listener);
  });
  return ntohs(address.sin_port);
}

TEST(Client, RefusesAStranger) {
  const auto stranger = start(echo(), {}, /*uid=*/1666);
  // Restricted to the controller's uid, the request cannot even be read there.
  const auto response = client(stranger->port())->call(request());
  EXPECT_EQ(response.status().code(), StatusCode::kPermissionDenied);
}

TEST(Client, ChecksWhoAnsweredAndTheNonce) {
  struct Case {
    const char* name;
    uid_t uid;
    std::function<void(Envelope&)> change;
    bool accepted;
  };
  const Case cases[] = {
      {"the controller", kSlurm, [](Envelope&) {}, true},
      {"root", 0, [](Envelope&) {}, true},
      {"foreign uid", 1002, [](Envelope&) {}, false},
      {"our own uid", 1001, [](Envelope&) {}, false},
      {"wrong nonce", kSlurm, [](Envelope& m) { m.nonce = "other"; }, false},
      {"no nonce", kSlurm, [](Envelope& m) { m.nonce = ""; }, false},
      {"other type", kSlurm, [](Envelope& m) { m.type = "register"; }, false},
  };
  for (const Case& c : cases) {
    std::thread server;
    const int port = answer_once(
        [&](const std::string& body) {
          const auto opened = open_sealed(body, *user(kSlurm));
          EXPECT_TRUE(opened.ok());
          Envelope answer;
          answer.type = opened->envelope.type;
          answer.nonce = opened->envelope.nonce;
          c.change(answer);
          return *seal(answer, *user(c.uid), std::nullopt);
        },
        server);
    const auto response = client(port)->call(request());
    server.join();
    EXPECT_EQ(response.ok(), c.accepted) << c.name << ": " << response.status().to_string();
    if (!c.accepted) {
      EXPECT_EQ(response.status().code(), StatusCode::kPermissionDenied) << c.name;
    }
  }
  for (const char* text : {"", "garbage", "FAKE:0:0:-1:x:zz"}) {
    std::thread server;
    const int port = answer_once([&](const std::string&) { return std::string(text); }, server);
    EXPECT_EQ(client(port)->call(request()).status().code(), StatusCode::kPermissionDenied);
    server.join();
  }
}

TEST(Client, AReplayedAnswerIsRefused) {
  auto auth = user(1001);
  std::string recorded;
  for (int i = 0; i < 2; ++i) {
    std::thread server;
    const int port = answer_once(
        [&](const std::string& body) {
          if (!recorded.empty()) return recorded;
          Envelope answer;
          const auto opened = open_sealed(body, *user(kSlurm));
          answer.type = opened->envelope.type;
          answer.nonce = opened->envelope.nonce;
          return recorded = *seal(answer, *user(kSlurm), 1001);
        },
        server);
    ClientOptions options;
    options.hosts = {{"127.0.0.1", port}};
    options.controller_uid = kSlurm;
    const auto response = (*make_client(options, auth))->call(request());
    server.join();
    EXPECT_EQ(response.ok(), i == 0);
  }
}

TEST(Client, TriesHostsInOrder) {
  const auto server = start(echo());
  const auto stranger = start(echo(), {}, 1666);
  ClientOptions options;
  options.controller_uid = kSlurm;
  options.hosts = {
      {"127.0.0.1", 1}, {"127.0.0.1", stranger->port()}, {"127.0.0.1", server->port()}};
  EXPECT_TRUE((*make_client(options, user(1001)))->call(request()).ok());
  options.hosts.pop_back();
  const auto failed = (*make_client(options, user(1001)))->call(request());
  EXPECT_EQ(failed.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(failed.status().message(), HasSubstr("127.0.0.1:1"));
  options.hosts = {};
  EXPECT_FALSE(make_client(options, user(1001)).ok());
}

TEST(Client, TimesOutAndCancels) {
  Waiting waiting;
  const auto server = start(waiting.handler());
  const auto c = client(server->port());
  const auto begin = Clock::now();
  EXPECT_EQ(c->call(request("poll"), 200ms).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(Clock::now() - begin, 2s);
  std::thread canceller([&] {
    waiting.wait_for(2);
    c->cancel();
  });
  const auto again = Clock::now();
  EXPECT_EQ(c->call(request("poll"), 30s).status().code(), StatusCode::kAborted);
  EXPECT_LT(Clock::now() - again, 2s);
  canceller.join();
  EXPECT_EQ(c->call(request("poll")).status().code(), StatusCode::kAborted) << "it stays cancelled";
}

TEST(Client, IgnoresHttpProxy) {
  const auto server = start(echo());
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  EXPECT_TRUE(client(server->port())->call(request()).ok());
  ::unsetenv("http_proxy");
}

TEST(Client, ServiceAway) {
  auto auth = std::make_shared<FakeAuthenticator>(1001, 1001);
  auth->set_available(false);
  ClientOptions options;
  options.hosts = {{"127.0.0.1", 1}};
  EXPECT_EQ((*make_client(options, auth))->call(request()).status().code(),
            StatusCode::kUnavailable);
}

TEST(Client, ARefusedCredentialNamesTheSkewOfTheClocks) {
  const auto refused_at = [](time_t when) {
    std::thread server;
    char date[64];
    tm utc{};
    ::gmtime_r(&when, &utc);
    std::strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    const int port = answer_once([](const std::string&) { return std::string(); }, server,
                                 fmt::format("HTTP/1.1 401 Unauthorized\r\nDate: {}\r\n", date));
    const Status status = client(port)->call(request()).status();
    server.join();
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
    return status.message();
  };
  const time_t now = std::time(nullptr);
  EXPECT_THAT(refused_at(now + 600), ::testing::ContainsRegex("clock is (59[0-9]|600) s ahead"));
  EXPECT_THAT(refused_at(now - 600), ::testing::ContainsRegex("clock is 6[0-9][0-9] s behind"));
  EXPECT_THAT(refused_at(now), HasSubstr("munge key"));
}

}  // namespace
}  // namespace flextrain::protocol
