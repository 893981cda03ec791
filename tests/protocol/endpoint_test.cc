// SPDX-License-Identifier: MIT
// The endpoint with honest callers: answers, long polls, starting and stopping.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/protocol/endpoint_fixture.h"

namespace flextrain::protocol {
namespace {

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
  for (int i = 0; i < count; ++i) {
    message.nonce = random_hex_id();
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
    callers.emplace_back([&] { EXPECT_FALSE(client(server->port())->call(request("poll")).ok()); });
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

}  // namespace
}  // namespace flextrain::protocol
