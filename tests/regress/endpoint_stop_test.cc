// SPDX-License-Identifier: MIT
// What went wrong: slurmctld could die of a malformed request that came while the endpoint stopped
// (shutdown, reconfigure, take-over). libmicrohttpd 0.9.75 takes no answer then, not even its own
// "bad request", and goes on to build that answer's header from a null pointer. The endpoint now
// ends every connection before it stops the library.
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
