// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "protocol/client.h"
#include "protocol/endpoint_server.h"
#include "protocol/fake_auth.h"

namespace flextrain::protocol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr uid_t kSlurm = 64030;

std::shared_ptr<Authenticator> user(uid_t uid) {
  return std::make_shared<FakeAuthenticator>(uid, uid);
}

Handler echo() {
  return [](const Envelope& request, const Caller& caller, const ReplyPtr& reply) {
    Envelope response;
    response.body = {{"uid", caller.uid}, {"body", request.body}};
    reply->send(response);
  };
}

std::unique_ptr<EndpointServer> start(Handler handler, EndpointOptions options = {},
                                      uid_t uid = kSlurm) {
  options.bind_address = "127.0.0.1";
  options.port = 0;
  auto server = EndpointServer::start(options, user(uid), std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status().to_string();
  return std::move(*server);
}

std::unique_ptr<Client> client(int port, uid_t uid = 1001) {
  ClientOptions options;
  options.hosts = {{"127.0.0.1", port}};
  options.controller_uid = kSlurm;
  options.timeout = 60s;
  return std::move(*make_client(options, user(uid)));
}

Envelope request(std::string type = "query") {
  Envelope m;
  m.type = std::move(type);
  m.body = {{"what", "jobs"}};
  return m;
}

int connect_raw(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
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

void send_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

// Everything until the peer closes, or what came within `limit`.
std::string read_all(int fd, std::chrono::milliseconds limit = 5s, bool* closed = nullptr) {
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

std::string http_post(std::string_view path, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path,
                     body.size(), body);
}

std::string raw_exchange(int port, std::string_view text) {
  const int fd = connect_raw(port);
  send_text(fd, text);
  std::string answer = read_all(fd);
  ::close(fd);
  return answer;
}

TEST(Endpoint, AnswersWithTheProvenUid) {
  const auto server = start(echo());
  const auto response = client(server->port(), 1001)->call(request());
  ASSERT_TRUE(response.ok()) << response.status().to_string();
  EXPECT_EQ(response->body["uid"], 1001);
  EXPECT_EQ(response->body["body"]["what"], "jobs");
}

TEST(Endpoint, LargeBodiesBothWays) {
  const auto server = start(echo());
  Envelope big = request();
  big.body["table"] = std::string(3 << 20, 'y');
  const auto response = client(server->port())->call(big);
  ASSERT_TRUE(response.ok()) << response.status().to_string();
  EXPECT_EQ(response->body["body"]["table"], big.body["table"]);
}

TEST(Endpoint, ResponseTooLargeBecomesAnError) {
  const auto server = start([](const Envelope&, const Caller&, const ReplyPtr& reply) {
    Envelope response;
    response.body = std::string(kMaxMessageBytes + 1, 'z');
    reply->send(response);
  });
  const auto response = client(server->port())->call(request());
  EXPECT_EQ(response.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(response.status().message(), HasSubstr("ask for less"));
}

TEST(Endpoint, RefusesGarbage) {
  std::atomic<int> handled{0};
  const auto server = start([&](const Envelope&, const Caller&, const ReplyPtr& reply) {
    ++handled;
    reply->send({});
  });
  const int port = server->port();
  EXPECT_THAT(raw_exchange(port, http_post("/v1/query", "garbage")), HasSubstr(" 401 "));
  EXPECT_THAT(raw_exchange(port, http_post("/v1/query", "")), HasSubstr(" 401 "));
  EXPECT_THAT(raw_exchange(port, http_post("/other", "x")), HasSubstr(" 404 "));
  EXPECT_THAT(raw_exchange(port, "GET /v1/query HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr(" 405 "));
  const std::string not_json = *user(5)->encode("flextrain-chunk a 0 1\nhello", std::nullopt);
  EXPECT_THAT(raw_exchange(port, http_post("/v1/query", not_json)), HasSubstr(" 400 "));
  raw_exchange(port, "\x16\x03\x01 not http at all\r\n\r\n");
  EXPECT_EQ(handled, 0);
  EXPECT_TRUE(client(port)->call(request()).ok()) << "it still serves";
  EXPECT_EQ(handled, 1);
}

TEST(Endpoint, RefusesWrongTypeVersionAndMissingNonce) {
  std::atomic<int> handled{0};
  const auto server = start([&](const Envelope&, const Caller&, const ReplyPtr&) { ++handled; });
  const auto send = [&](const Envelope& message) {
    const std::string answer = raw_exchange(
        server->port(), http_post("/v1/query", *seal(message, *user(5), std::nullopt)));
    const size_t body = answer.find("\r\n\r\n");
    EXPECT_NE(body, std::string::npos);
    const auto opened = open_sealed(answer.substr(body + 4), *user(5));
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return opened.ok() ? opened->envelope.error : "";
  };
  Envelope message = request();
  message.nonce = "n";
  message.type = "poll";
  EXPECT_THAT(send(message), HasSubstr("type"));
  message.type = "query";
  message.version = kProtocolVersion + 1;
  EXPECT_THAT(send(message), HasSubstr("version"));
  message.version = kProtocolVersion;
  message.nonce = "";
  EXPECT_THAT(send(message), HasSubstr("nonce"));
  EXPECT_EQ(handled, 0);
}

TEST(Endpoint, RefusesAReplayedRequest) {
  std::atomic<int> handled{0};
  const auto server = start([&](const Envelope&, const Caller&, const ReplyPtr& reply) {
    ++handled;
    reply->send({});
  });
  Envelope message = request();
  message.nonce = "n";
  const std::string text = http_post("/v1/query", *seal(message, *user(5), std::nullopt));
  EXPECT_THAT(raw_exchange(server->port(), text), HasSubstr(" 200 "));
  EXPECT_THAT(raw_exchange(server->port(), text), HasSubstr(" 401 "));
  EXPECT_EQ(handled, 1);
}

TEST(Endpoint, RefusesOversizedBodies) {
  EndpointOptions options;
  options.max_body_bytes = 100'000;
  const auto server = start(echo(), options);
  EXPECT_THAT(
      raw_exchange(server->port(),
                   "POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"),
      HasSubstr(" 413 "));
  // Without a length: the connection is closed when the limit is passed.
  const int fd = connect_raw(server->port());
  send_text(fd, "POST /v1/query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 50; ++i) {
    send_text(fd, "1000\r\n" + std::string(0x1000, 'a') + "\r\n");
  }
  bool closed = false;
  EXPECT_THAT(read_all(fd, 5s, &closed), ::testing::Not(HasSubstr(" 200 ")));
  EXPECT_TRUE(closed);
  ::close(fd);
  EXPECT_TRUE(client(server->port())->call(request()).ok());
}

TEST(Endpoint, BoundsTheBytesOfAllConnectionsTogether) {
  EndpointOptions options;
  options.max_buffered_bytes = 300'000;
  const auto server = start(echo(), options);
  std::vector<int> fds;
  for (int i = 0; i < 6; ++i) {  // 6 x 90 kB of unfinished requests
    fds.push_back(connect_raw(server->port()));
    send_text(fds.back(), "POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    send_text(fds.back(), std::string(90'000, 'a'));
  }
  const auto end = Clock::now() + 5s;
  while (server->statistics().connections > 3 && Clock::now() < end)
    std::this_thread::sleep_for(5ms);
  EXPECT_LE(server->statistics().connections, 3);
  for (const int fd : fds) ::close(fd);
  const auto later = Clock::now() + 5s;
  bool served = false;
  while (!served && Clock::now() < later) served = client(server->port())->call(request()).ok();
  EXPECT_TRUE(served) << "the account is given back when connections close";
}

TEST(Endpoint, ClosesSlowClients) {
  EndpointOptions options;
  options.io_timeout = 400ms;
  const auto server = start(echo(), options);
  const int idle = connect_raw(server->port());
  const int trickle = connect_raw(server->port());
  const int body = connect_raw(server->port());
  send_text(body, "POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  std::thread slow([&] {
    for (const char c : std::string("POST /v1/query HTTP/1.1\r\nHost: x\r\n")) {
      send_text(trickle, std::string(1, c));
      send_text(body, "x");
      std::this_thread::sleep_for(50ms);
    }
  });
  const auto begin = Clock::now();
  for (const int fd : {idle, trickle, body}) {
    bool closed = false;
    read_all(fd, 5s, &closed);
    EXPECT_TRUE(closed);
    EXPECT_LT(Clock::now() - begin, 3s);
  }
  slow.join();
  for (const int fd : {idle, trickle, body}) ::close(fd);
  EXPECT_EQ(server->statistics().connections, 0);
}

TEST(Endpoint, LimitsConnectionsPerAddress) {
  EndpointOptions options;
  options.max_connections_per_address = 4;
  const auto server = start(echo(), options);
  std::vector<int> fds;
  for (int i = 0; i < 10; ++i) fds.push_back(connect_raw(server->port()));
  const auto end = Clock::now() + 2s;
  while (server->statistics().connections < 4 && Clock::now() < end) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_LE(server->statistics().connections, 4);
  for (const int fd : fds) ::close(fd);
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

TEST(Endpoint, LongPollWakesAtOnce) {
  Waiting waiting;
  const auto server = start(waiting.handler());
  Clock::time_point sent, received;
  std::vector<double> latencies;
  for (int i = 0; i < 20; ++i) {
    std::thread poller([&] {
      EXPECT_TRUE(client(server->port())->call(request("poll")).ok());
      received = Clock::now();
    });
    ASSERT_TRUE(waiting.wait_for(static_cast<size_t>(i) + 1));
    sent = Clock::now();
    EXPECT_TRUE(waiting.replies.back()->send({}));
    EXPECT_FALSE(waiting.replies.back()->send({})) << "only the first answer counts";
    poller.join();
    latencies.push_back(std::chrono::duration<double, std::milli>(received - sent).count());
  }
  std::sort(latencies.begin(), latencies.end());
  RecordProperty("median_ms", fmt::format("{:.2f}", latencies[10]));
  fmt::print("long poll wake-up: median {:.2f} ms, worst {:.2f} ms\n", latencies[10],
             latencies.back());
  EXPECT_LT(latencies[10], 100.0);
}

TEST(Endpoint, ManyWaitingPollsCostNoThreads) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const int count = files.rlim_cur >= 4096 ? 1000 : 100;
  Waiting waiting;
  EndpointOptions options;
  options.max_connections_per_address = 2000;
  const auto server = start(waiting.handler(), options);
  std::vector<int> fds;
  FakeAuthenticator alice(1001, 1001);
  Envelope message = request("poll");
  message.nonce = "n";
  for (int i = 0; i < count; ++i) {
    fds.push_back(connect_raw(server->port()));
    ASSERT_GE(fds.back(), 0);
    send_text(fds.back(), http_post("/v1/poll", *seal(message, alice, std::nullopt)));
  }
  ASSERT_TRUE(waiting.wait_for(static_cast<size_t>(count)));
  EXPECT_EQ(server->statistics().waiting, count);
  EXPECT_TRUE(waiting.replies[0]->send({}));
  for (size_t i = 1; i < waiting.replies.size(); ++i) waiting.replies[i]->send({});
  for (const int fd : fds) {
    EXPECT_THAT(read_all(fd), HasSubstr(" 200 "));
    ::close(fd);
  }
}

TEST(Endpoint, SendAfterAnswersWhenNothingComes) {
  const auto server = start([](const Envelope&, const Caller&, const ReplyPtr& reply) {
    Envelope none;
    none.body = "nothing";
    reply->send_after(150ms, none);
  });
  const auto begin = Clock::now();
  const auto response = client(server->port())->call(request("poll"));
  ASSERT_TRUE(response.ok()) << response.status().to_string();
  EXPECT_EQ(response->body, "nothing");
  EXPECT_GE(Clock::now() - begin, 150ms);
  EXPECT_LT(Clock::now() - begin, 2s);
}

TEST(Endpoint, ADroppedOrFailedRequestGetsAnError) {
  const auto dropping = start([](const Envelope&, const Caller&, const ReplyPtr&) {});
  EXPECT_EQ(client(dropping->port())->call(request()).status().code(),
            StatusCode::kFailedPrecondition);
  const auto throwing = start(
      [](const Envelope&, const Caller&, const ReplyPtr&) { throw std::runtime_error("oops"); });
  EXPECT_EQ(client(throwing->port())->call(request()).status().code(),
            StatusCode::kFailedPrecondition);
  Waiting waiting;
  EndpointOptions options;
  options.max_deferred = 200ms;
  const auto forgetful = start(waiting.handler(), options);
  EXPECT_THAT(client(forgetful->port())->call(request()).status().message(),
              HasSubstr("did not answer in time"));
}

TEST(Endpoint, StopIsQuickWithWaitingAndHalfOpenConnections) {
  Waiting waiting;
  auto server = start(waiting.handler());
  const int port = server->port();
  std::vector<std::thread> pollers;
  std::atomic<int> unavailable{0};
  for (int i = 0; i < 20; ++i) {
    pollers.emplace_back([&] {
      if (client(port)->call(request("poll")).status().code() == StatusCode::kUnavailable) {
        ++unavailable;
      }
    });
  }
  const int half = connect_raw(port);
  send_text(half, "POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc");
  ASSERT_TRUE(waiting.wait_for(20));
  const auto begin = Clock::now();
  server->stop();
  EXPECT_LT(Clock::now() - begin, 1s);
  for (auto& poller : pollers) poller.join();
  EXPECT_EQ(unavailable, 20);
  EXPECT_FALSE(waiting.replies[0]->send({})) << "a late answer is harmless";
  server->stop();
  server.reset();
  waiting.replies[1]->send_after(1ms, {});
  ::close(half);
}

// A munged that hangs must not hang slurmctld's shutdown.
class StuckAuthenticator : public FakeAuthenticator {
 public:
  using FakeAuthenticator::FakeAuthenticator;
  Result<Decoded> decode(std::string_view credential) override {
    ++inside;
    while (stuck) std::this_thread::sleep_for(5ms);
    --inside;
    return FakeAuthenticator::decode(credential);
  }
  std::atomic<bool> stuck{true};
  std::atomic<int> inside{0};
};

TEST(Endpoint, StopDoesNotWaitForAStuckMunge) {
  auto auth = std::make_shared<StuckAuthenticator>(kSlurm, kSlurm);
  EndpointOptions options;
  options.bind_address = "127.0.0.1";
  options.port = 0;
  options.stop_timeout = 300ms;
  auto server = std::move(*EndpointServer::start(options, auth, echo()));
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] { EXPECT_FALSE(client(server->port())->call(request()).ok()); });
  }
  const auto end = Clock::now() + 5s;
  while (auth->inside < 2 && Clock::now() < end) std::this_thread::sleep_for(2ms);
  ASSERT_EQ(auth->inside, 2);
  const auto begin = Clock::now();
  server->stop();
  EXPECT_LT(Clock::now() - begin, 2s);
  for (auto& caller : callers) caller.join();
  server.reset();
  auth->stuck = false;
  const auto later = Clock::now() + 5s;
  while (auth->inside > 0 && Clock::now() < later) std::this_thread::sleep_for(2ms);
  EXPECT_EQ(auth->inside, 0);
}

TEST(Endpoint, PeersThatVanishDoNotKillTheProcess) {
  const auto server = start([](const Envelope&, const Caller&, const ReplyPtr& reply) {
    Envelope response;
    response.body = std::string(1 << 20, 'q');
    reply->send(response);
  });
  FakeAuthenticator alice(1001, 1001);
  Envelope message = request();
  message.nonce = "n";
  for (int i = 0; i < 20; ++i) {
    const int fd = connect_raw(server->port());
    send_text(fd, http_post("/v1/query", *seal(message, alice, std::nullopt)));
    if (i % 2 == 0) std::this_thread::sleep_for(10ms);
    const linger now{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);  // RST
    ::close(fd);
  }
  EXPECT_TRUE(client(server->port())->call(request()).ok());
}

TEST(Endpoint, PortTakenIsAnError) {
  const auto server = start(echo());
  EndpointOptions options;
  options.bind_address = "127.0.0.1";
  options.port = server->port();
  EXPECT_EQ(EndpointServer::start(options, user(kSlurm), echo()).status().code(),
            StatusCode::kUnavailable);
}

TEST(Endpoint, ManyCallersAtOnce) {
  const auto server = start(echo());
  std::atomic<int> good{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 16; ++t) {
    callers.emplace_back([&, t] {
      const auto c = client(server->port(), 2000 + static_cast<uid_t>(t));
      for (int i = 0; i < 25; ++i) {
        const auto response = c->call(request());
        if (response.ok() && response->body["uid"] == 2000 + t) ++good;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(good, 400);
}

TEST(Endpoint, StartStopManyTimes) {
  for (int i = 0; i < 30; ++i) {
    const auto server = start(echo());
    EXPECT_TRUE(client(server->port())->call(request()).ok());
  }
}

// ---- the client's side -------------------------------------------------------------------------

TEST(Client, RefusesAStranger) {
  const auto stranger = start(echo(), {}, /*uid=*/1666);
  // Restricted to the controller's uid, the request cannot even be read there.
  const auto response = client(stranger->port())->call(request());
  EXPECT_EQ(response.status().code(), StatusCode::kPermissionDenied);
}

// A server that answers with whatever the test wants.
int answer_once(const std::function<std::string(std::string)>& answer, std::thread& thread) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  thread = std::thread([listener, answer] {
    const int fd = ::accept(listener, nullptr, nullptr);
    std::string text;
    char buffer[65536];
    while (true) {  // headers, then the body by its length
      const size_t head = text.find("\r\n\r\n");
      if (head != std::string::npos) {
        const size_t at = text.find("Content-Length: ");
        const size_t length = std::stoul(text.substr(at + 16));
        if (text.size() >= head + 4 + length) break;
      }
      const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    const std::string body = answer(text.substr(text.find("\r\n\r\n") + 4));
    send_text(fd,
              fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
    ::close(fd);
    ::close(listener);
  });
  return ntohs(address.sin_port);
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

}  // namespace
}  // namespace flextrain::protocol
