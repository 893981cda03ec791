// SPDX-License-Identifier: MIT
// An endpoint that serves one text to whoever asks (metrics).
#include "tests/protocol/endpoint_fixture.h"

namespace flextrain::protocol {
namespace {

constexpr std::chrono::milliseconds kPatience{60'000};  // the machine may be busy

class Page : public ::testing::Test {
 protected:
  void serve(EndpointOptions options = {}) {
    options.bind_address = "127.0.0.1";
    options.port = 0;
    options.page = {"/metrics", "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    [this] {
                      const std::lock_guard lock(mutex);
                      return text;
                    }};
    auto started = EndpointServer::start(options, nullptr, nullptr);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server = std::move(*started);
  }
  void set_text(std::string next) {
    auto made = std::make_shared<const std::string>(std::move(next));
    const std::lock_guard lock(mutex);
    text.swap(made);
  }
  std::string ask(const std::string& request_line) {
    const int fd = connect_raw(server->port());
    send_text(fd, request_line + " HTTP/1.1\r\nHost: x\r\n\r\n");
    std::string answer = read_all(fd, kPatience);
    ::close(fd);
    return answer;
  }

  std::mutex mutex;
  std::shared_ptr<const std::string> text = std::make_shared<const std::string>("a 1\n# EOF\n");
  std::unique_ptr<EndpointServer> server;
};

TEST_F(Page, IsAnsweredAsItIsNow) {
  serve();
  const std::string first = ask("GET /metrics");
  EXPECT_THAT(first, ::testing::StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(
      first, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"));
  EXPECT_THAT(first, ::testing::EndsWith("\r\n\r\na 1\n# EOF\n"));
  set_text("a 2\n# EOF\n");
  EXPECT_THAT(ask("GET /metrics?x=y"), ::testing::EndsWith("\r\n\r\na 2\n# EOF\n"));
}

TEST_F(Page, NothingElseIsServed) {
  serve();
  for (const char* path : {"/", "/metric", "/metrics/", "/v1/query", "/../etc/passwd"})
    EXPECT_THAT(ask(std::string("GET ") + path), HasSubstr(" 404 ")) << path;
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "HEAD"})
    EXPECT_THAT(ask(std::string(method) + " /metrics"), HasSubstr(" 405 ")) << method;
  EXPECT_THAT(ask("POST /v1/query"), HasSubstr(" 404 "));
  EXPECT_EQ(server->statistics().refused, 11);
  set_text("");
  {
    const std::lock_guard lock(mutex);
    text = nullptr;
  }
  EXPECT_THAT(ask("GET /metrics"), HasSubstr(" 503 "));
}

// Who reads slowly gets what it began with, whole.
TEST_F(Page, IsReadToItsEndWhileANewOneComes) {
  const std::string large(size_t{8} << 20, 'x');
  set_text(large);
  serve();
  const int fd = connect_raw(server->port());
  send_text(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  char head[16];
  ASSERT_EQ(::recv(fd, head, sizeof head, MSG_WAITALL), static_cast<ssize_t>(sizeof head));
  set_text("new");
  const std::string rest = read_all(fd, kPatience);
  ::close(fd);
  ASSERT_GE(rest.size(), large.size());
  EXPECT_TRUE(rest.ends_with(large));
  EXPECT_THAT(ask("GET /metrics"), ::testing::EndsWith("new"));
}

TEST_F(Page, SilentPeersAreCutAndDoNotKeepItFromStopping) {
  EndpointOptions options;
  options.max_connections_per_address = 2;
  options.io_timeout = 300ms;
  serve(options);
  const int first = connect_raw(server->port()), second = connect_raw(server->port());
  bool closed = false;
  read_all(first, kPatience, &closed);
  EXPECT_TRUE(closed) << "it has sent no request in time";
  read_all(second, kPatience, &closed);
  EXPECT_TRUE(closed);
  ::close(first);
  ::close(second);
  // Their places are free a moment after they have been told.
  std::string answer;
  for (const auto end = Clock::now() + kPatience; answer.empty() && Clock::now() < end;) {
    answer = ask("GET /metrics");
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_THAT(answer, HasSubstr(" 200 "));
  const int third = connect_raw(server->port());
  server->stop();  // returns
  read_all(third, kPatience, &closed);
  EXPECT_TRUE(closed);
  ::close(third);
}

}  // namespace
}  // namespace flextrain::protocol
