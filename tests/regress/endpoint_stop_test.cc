// SPDX-License-Identifier: MIT
// What went wrong: slurmctld could die of a malformed request that came while the endpoint stopped
// (shutdown, reconfigure, take-over). libmicrohttpd 0.9.75 takes no answer then, not even its own
// "bad request", and goes on to build that answer's header from a null pointer. It also aborts the
// process when its own thread and the one that quiesces it take the listening socket out of epoll
// at the same time. The endpoint now runs the event loop itself, and stops the library when that
// has ended.
#include <atomic>
#include <random>

#include "tests/protocol/endpoint_fixture.h"

namespace flextrain::protocol {
namespace {

TEST(EndpointStop, GarbageWhileItStopsIsHarmless) {
  std::atomic<int> port{0};
  std::atomic<bool> flooding{true};
  std::vector<std::thread> floods;
  for (int seed = 0; seed < 3; ++seed) {
    floods.emplace_back([&, seed] {
      std::mt19937 random(static_cast<unsigned>(seed));
      while (flooding) {
        std::string text(1 + random() % 500, ' ');
        for (char& c : text) c = static_cast<char>(random());
        const int fd = connect_raw(port, fmt::format("127.0.7.{}", seed + 1));
        if (fd < 0) continue;
        send_text(fd, text + "\r\n\r\n");
        ::close(fd);
      }
    });
  }
  for (int round = 0; round < 60; ++round) {
    const auto server = start(echo());
    port = server->port();
    std::this_thread::sleep_for(5ms);  // not waited for: connections of every age at the stop
    const auto begin = Clock::now();
    server->stop();
    EXPECT_LT(Clock::now() - begin, 10s);
    EXPECT_EQ(server->statistics().connections, 0);
  }
  flooding = false;
  for (auto& flood : floods) flood.join();
}

// One peer of many kinds, some of whom leave in the middle.
void visit(std::mt19937& random, int port, const std::string& address) {
  const int fd = connect_raw(port, address);
  if (fd < 0) return;
  Envelope message = request(random() % 2 == 0 ? "poll" : "query");
  message.nonce = random_hex_id();
  const auto good = [&] {
    return http_post("/v1/" + message.type, *seal(message, *user(5), std::nullopt));
  };
  const std::string head = "POST /v1/poll HTTP/1.1\r\nHost: x\r\n";
  switch (random() % 12) {
    case 0:
      send_text(fd, good());
      break;  // waits for its answer, or goes
    case 1:
      send_text(fd, good() + good());
      break;
    case 2:
      send_text(fd, head + "X: " + std::string(20'000, 'h') + "\r\n\r\n");
      break;
    case 3:
      send_text(fd, head + "Cookie: a=b; c\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
      break;
    case 4:
      send_text(fd, head + "Content-Length: 18446744073709551616\r\n\r\n");
      break;
    case 5:
      send_text(fd, head + "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n");
      break;
    case 6:
      send_text(fd, "GET /" + std::string(16'300 + random() % 200, 'u') + " HTTP/1.1\r\n\r\n");
      break;
    case 7:
      send_text(fd, "POST /v1/poll?a&b=%zz HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
      break;
    case 8:
      send_text(fd, head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx");
      break;
    case 9:
      send_text(fd, head + ": no name\r\n folded\r\n\r\n");
      break;
    case 10:
      send_text(fd, head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef");
      break;
    default:
      send_text(fd, "\r\n\r\n" + std::string(random() % 40'000, '\r') + "\n");
      break;
  }
  if (random() % 3 == 0) read_all(fd, std::chrono::milliseconds(random() % 20));
  if (random() % 2 == 0) {
    const linger now{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);  // RST
  }
  ::close(fd);
}

TEST(EndpointStop, EveryKindOfPeerWhileItStopsIsHarmless) {
  std::atomic<int> port{0};
  std::atomic<bool> visiting{true};
  std::vector<std::thread> peers;
  for (int seed = 0; seed < 4; ++seed) {
    peers.emplace_back([&, seed] {
      std::mt19937 random(static_cast<unsigned>(seed));
      while (visiting) visit(random, port, fmt::format("127.0.8.{}", seed + 1));
    });
  }
  for (int round = 0; round < 40; ++round) {
    EndpointOptions options;
    options.max_connections = 24;  // the library's own limits are reached and left
    options.max_connections_per_address = 4;
    options.stop_timeout = 500ms;
    Waiting polls;
    const auto server = start(
        [&, hold = polls.handler()](const Envelope& asked, const Caller& caller,
                                    const ReplyPtr& reply) {
          if (asked.type == "poll") return hold(asked, caller, reply);
          reply->send({});
        },
        options);
    port = server->port();
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 8 * 5));
    const auto begin = Clock::now();
    server->stop();
    EXPECT_LT(Clock::now() - begin, 20s);
    EXPECT_EQ(server->statistics().connections, 0);
    EXPECT_EQ(server->statistics().waiting, 0);
    EXPECT_EQ(server->statistics().buffered_bytes, 0u);
  }
  visiting = false;
  for (auto& peer : peers) peer.join();
}

TEST(EndpointStop, WaitingCallersGetTheirAnswer) {
  Waiting waiting;
  const auto server = start(waiting.handler());
  Envelope message = request("poll");
  message.nonce = "n";
  const int fd = connect_raw(server->port());
  send_text(fd, http_post("/v1/poll", *seal(message, *user(5), std::nullopt)));
  ASSERT_TRUE(waiting.wait_for(1));
  server->stop();
  EXPECT_THAT(read_all(fd), HasSubstr(" 503 "));
  ::close(fd);
}

}  // namespace
}  // namespace flextrain::protocol
