// SPDX-License-Identifier: MIT
// The endpoint and peers that mean it ill.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "tests/protocol/endpoint_fixture.h"

namespace flextrain::protocol {
namespace {

TEST(HostilePeers, RefusesGarbage) {
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

TEST(HostilePeers, RefusesWrongTypeVersionAndMissingNonce) {
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
  message.nonce = "n1";
  message.type = "poll";
  EXPECT_THAT(send(message), HasSubstr("type"));
  message.nonce = "n2";
  message.type = "query";
  message.version = kProtocolVersion + 1;
  EXPECT_THAT(send(message), HasSubstr("version"));
  message.version = kProtocolVersion;
  message.nonce = "";
  EXPECT_THAT(send(message), HasSubstr("nonce"));
  EXPECT_EQ(handled, 0);
}

TEST(HostilePeers, RefusesAReplayedRequest) {
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

TEST(HostilePeers, RefusesARequestMadeBeforeItServed) {
  auto auth = std::make_shared<FakeAuthenticator>(kSlurm, kSlurm);
  EndpointOptions options;
  options.bind_address = "127.0.0.1";
  options.port = 0;
  const auto server = std::move(*EndpointServer::start(options, auth, echo()));
  auth->set_age(1h);
  const Status status = client(server->port())->call(request()).status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  auth->set_age(-5s);  // a clock ahead
  EXPECT_TRUE(client(server->port())->call(request()).ok());
  auth->set_age(3s);  // a clock behind: served as soon as the server is that old
  const auto end = Clock::now() + 30s;
  bool served = false;
  while (!served && Clock::now() < end) served = client(server->port())->call(request()).ok();
  EXPECT_TRUE(served);
}

TEST(HostilePeers, RefusesOversizedBodies) {
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

TEST(HostilePeers, BoundsTheBytesOfAllConnectionsTogether) {
  EndpointOptions options;
  options.max_buffered_bytes = 400'000;
  const auto server = start(echo(), options);
  std::vector<int> fds;
  for (int i = 0; i < 12; ++i) {  // unfinished requests, 85 kB of each out of the pool
    fds.push_back(connect_raw(server->port(), fmt::format("127.0.6.{}", i + 1)));
    send_text(fds.back(), "POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n");
    send_text(fds.back(), std::string(150'000, 'a'));
  }
  const auto end = Clock::now() + 20s;
  while (server->statistics().connections > 4 && Clock::now() < end) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_LE(server->statistics().connections, 4);
  EXPECT_LE(server->statistics().buffered_bytes, 400'000u);
  for (const int fd : fds) ::close(fd);
  Envelope large = request();
  large.body["table"] = std::string(40'000, 'y');
  const auto later = Clock::now() + 20s;
  bool served = false;
  while (!served && Clock::now() < later) served = client(server->port())->call(large).ok();
  EXPECT_TRUE(served) << "the account is given back when connections close";
}

TEST(HostilePeers, ClosesSlowClients) {
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

TEST(HostilePeers, LimitsConnectionsPerAddress) {
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

TEST(HostilePeers, PeersThatVanishDoNotKillTheProcess) {
  const auto server = start([](const Envelope&, const Caller&, const ReplyPtr& reply) {
    Envelope response;
    response.body = std::string(1 << 20, 'q');
    reply->send(response);
  });
  FakeAuthenticator alice(1001, 1001);
  Envelope message = request();
  for (int i = 0; i < 20; ++i) {
    message.nonce = random_hex_id();
    const int fd = connect_raw(server->port());
    send_text(fd, http_post("/v1/query", *seal(message, alice, std::nullopt)));
    if (i % 2 == 0) std::this_thread::sleep_for(10ms);
    const linger now{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);  // RST
    ::close(fd);
  }
  EXPECT_TRUE(client(server->port())->call(request()).ok());
}

// Resident memory of this process, MiB.
double resident_mib() {
  std::ifstream stream("/proc/self/statm");
  long whole = 0, resident = 0;
  stream >> whole >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// The worst of a few calls of an honest agent, in milliseconds; -1 when one failed.
double worst_call_ms(int port, int calls = 10) {
  double worst = 0;
  for (int i = 0; i < calls; ++i) {
    const auto begin = Clock::now();
    if (!client(port)->call(request("progress"), 20s).ok()) return -1;
    worst =
        std::max(worst, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return worst;
}

bool wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit = 20s) {
  const auto end = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// As many descriptors as this process may have; both ends of every connection are here.
int files_allowed() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 20));
}

void close_all(std::vector<int>& fds) {
  for (const int fd : fds) ::close(fd);
  fds.clear();
}

TEST(HostilePeers, TwoThousandSilentConnections) {
  const int count = std::min(2000, (files_allowed() - 200) / 4);
  EndpointOptions options;
  options.io_timeout = 3s;
  const auto server = start(echo(), options);
  const double before_mib = resident_mib(), before_ms = worst_call_ms(server->port());
  std::vector<int> fds;
  for (int i = 0; i < count; ++i) {  // ten hosts, so that each stays within its own bound
    fds.push_back(connect_raw(server->port(), fmt::format("127.0.1.{}", 1 + i % 10)));
    ASSERT_GE(fds.back(), 0) << i;
  }
  const bool all_there =
      wait_until([&] { return server->statistics().connections >= count; }, 2500ms);
  const int most = server->statistics().connections;
  const double among_ms = worst_call_ms(server->port()), mib = resident_mib() - before_mib;
  EXPECT_GE(among_ms, 0) << "an honest agent is served";
  EXPECT_LT(mib, 128);
  EXPECT_TRUE(wait_until([&] { return server->statistics().connections == 0; }))
      << server->statistics().connections << " are left: they are cut after io_timeout";
  fmt::print(
      "{} silent connections ({} at once{}): +{:.0f} MiB; honest call, worst of 10: "
      "{:.1f} ms before, {:.1f} ms among them\n",
      count, most, all_there ? "" : ", slow machine", mib, before_ms, among_ms);
  close_all(fds);
}

TEST(HostilePeers, AFloodFromOneAddressLeavesTheOthersRoom) {
  const int count = std::min(1500, (files_allowed() - 200) / 4);
  const auto server = start(echo());
  std::vector<int> fds;
  for (int i = 0; i < count; ++i) fds.push_back(connect_raw(server->port(), "127.0.2.1"));
  wait_until([&] { return server->statistics().connections >= 256; }, 5s);
  EXPECT_LE(server->statistics().connections, 256 + 1);
  EXPECT_GE(worst_call_ms(server->port()), 0);
  close_all(fds);
}

TEST(HostilePeers, PatienceEndsWhereRoomGetsScarce) {
  EndpointOptions options;
  options.max_connections = 40;
  options.io_timeout = 60s;  // an eighth is 7.5 s
  const auto server = start(echo(), options);
  std::vector<int> fds;
  for (int i = 0; i < 36; ++i) fds.push_back(connect_raw(server->port()));
  const auto begin = Clock::now();
  EXPECT_TRUE(wait_until([&] { return server->statistics().connections <= 30; }, 30s));
  EXPECT_LT(Clock::now() - begin, 30s);
  close_all(fds);
}

#ifdef __SANITIZE_ADDRESS__  // which is slow, and keeps what was freed
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(HostilePeers, AnswersThatNobodyReadsAreBounded) {
  constexpr size_t kAnswer = kSanitized ? size_t{192} << 10 : size_t{3} << 20;
  EndpointOptions options;
  options.io_timeout = 3s;
  options.max_buffered_bytes = kAnswer / 3 * 32;
  const auto server = start(
      [](const Envelope& asked, const Caller&, const ReplyPtr& reply) {
        Envelope response;
        if (asked.type == kQuery) response.body = std::string(kAnswer, 'q');
        reply->send(response);
      },
      options);
  FakeAuthenticator mallory(1666, 1666);
  const double before_mib = resident_mib();
  std::vector<int> fds;
  for (int i = 0; i < 64; ++i) {  // 64 x 6 MiB, fake credentials being hexadecimal
    Envelope message = request();
    message.nonce = random_hex_id();
    fds.push_back(connect_raw(server->port(), "127.0.3.1"));
    const int small = 4096;
    ::setsockopt(fds.back(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    send_text(fds.back(), http_post("/v1/query", *seal(message, mallory, std::nullopt)));
  }
  size_t most = 0;
  double mib = 0;
  EXPECT_TRUE(wait_until(
      [&] {
        most = std::max(most, server->statistics().buffered_bytes);
        mib = std::max(mib, resident_mib() - before_mib);
        return server->statistics().requests >= 64 && server->statistics().waiting == 0;
      },
      120s));
  EXPECT_LE(most, options.max_buffered_bytes / 4) << "of one address";
  // The account, and what two workers have in hand: a value, its text, the sealed body of each.
  if (!kSanitized) {
    EXPECT_LE(mib, 64) << "at no moment";
  }
  EXPECT_GE(worst_call_ms(server->port()), 0);
  EXPECT_TRUE(wait_until([&] { return server->statistics().connections == 0; }, 60s))
      << "who does not read is cut";
  EXPECT_EQ(server->statistics().buffered_bytes, 0u);
  fmt::print(
      "64 answers of {:.1f} MiB that nobody reads: at most {:.1f} MiB kept, +{:.0f} MiB resident "
      "at "
      "worst\n",
      2.0 * kAnswer / (1 << 20), static_cast<double>(most) / (1 << 20), mib);
  close_all(fds);
}

TEST(HostilePeers, UploadsFromOneAddressLeaveTheOthersRoom) {
  EndpointOptions options;
  options.max_buffered_bytes = 4'000'000;
  const auto server = start(echo(), options);
  std::vector<int> fds;
  for (int i = 0; i < 12; ++i) {
    fds.push_back(connect_raw(server->port(), "127.0.4.1"));
    send_text(fds.back(), "POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n");
    send_text(fds.back(), std::string(800'000, 'a'));
  }
  EXPECT_TRUE(wait_until([&] { return server->statistics().connections <= 1; }));
  Envelope large = request();
  large.body["table"] = std::string(300'000, 'y');
  EXPECT_TRUE(client(server->port())->call(large).ok());
  close_all(fds);
}

TEST(HostilePeers, QueriesDoNotHoldUpAgents) {
  std::atomic<bool> slow{true};
  const auto server = start([&](const Envelope& asked, const Caller&, const ReplyPtr& reply) {
    const auto end = Clock::now() + 20s;
    while (asked.type == kQuery && slow && Clock::now() < end) std::this_thread::sleep_for(5ms);
    reply->send({});
  });
  std::vector<std::thread> people;
  for (int i = 0; i < 8; ++i) {
    people.emplace_back([&] { EXPECT_TRUE(client(server->port(), 1500)->call(request()).ok()); });
  }
  EXPECT_TRUE(wait_until([&] { return server->statistics().waiting == 8; }));
  const double agent_ms = worst_call_ms(server->port());
  EXPECT_GE(agent_ms, 0);
  EXPECT_LT(agent_ms, 10'000) << "none of eight queries that take 20 s each is waited for";
  slow = false;
  for (auto& person : people) person.join();
}

TEST(HostilePeers, GarbageBehindARequestIsNotARequest) {
  std::atomic<int> handled{0};
  const auto server = start([&](const Envelope&, const Caller&, const ReplyPtr& reply) {
    ++handled;
    reply->send({});
  });
  Envelope first = request(), second = request();
  first.nonce = random_hex_id();
  second.nonce = random_hex_id();
  const std::string good = http_post("/v1/query", *seal(first, *user(5), std::nullopt));
  const std::string other = http_post("/v1/query", *seal(second, *user(5), std::nullopt));
  for (const std::string& behind : {std::string("\0\xff\r\n\r\n", 6), other}) {
    const std::string answer = raw_exchange(server->port(), good + behind);
    EXPECT_EQ(answer.find("HTTP/1.1 "), answer.rfind("HTTP/1.1 ")) << "one connection, one answer";
  }
  EXPECT_EQ(handled, 1) << "the second time the first request is a replay";
  EXPECT_GE(worst_call_ms(server->port()), 0);
}

TEST(HostilePeers, HonestAgentsAmongAFloodOfGarbage) {
  const auto server = start(echo());
  const int port = server->port();
  std::atomic<bool> flooding{true};
  std::atomic<int> sent{0};
  std::thread flood([&] {
    std::mt19937 random(7);
    while (flooding) {
      std::string text(1 + random() % 2000, ' ');
      for (char& c : text) c = static_cast<char>(random());
      const int fd = connect_raw(port, "127.0.5.1");
      send_text(fd, random() % 2 == 0 ? text : http_post("/v1/poll", text));
      ::close(fd);
      ++sent;
    }
  });
  const double worst = worst_call_ms(port, 30);
  flooding = false;
  flood.join();
  EXPECT_GE(worst, 0);
  fmt::print("{} garbage connections meanwhile; honest call, worst of 30: {:.1f} ms\n", sent.load(),
             worst);
}

}  // namespace
}  // namespace flextrain::protocol
