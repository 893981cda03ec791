// SPDX-License-Identifier: MIT
// Endpoint and client over the real munge: whose credential is taken, what a captured one is worth,
// and that none of it reaches a log.
#include <mutex>

#include "base/log.h"
#include "protocol/framing.h"
#include "tests/protocol/endpoint_fixture.h"
#include "tests/protocol/munge_fixture.h"

namespace flextrain::protocol {
namespace {

using ::testing::ContainsRegex;
using ::testing::Not;

// Every line of the log, at debug level, while one of these lives.
class LogCapture {
 public:
  LogCapture() {
    text().clear();
    set_log_sink([](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex());
      text().append(line).append("\n");
    });
    set_log_level(LogLevel::kDebug);
  }
  ~LogCapture() {
    set_log_sink(nullptr);
    set_log_level(LogLevel::kInfo);
  }
  static std::string all() {
    const std::lock_guard lock(mutex());
    return text();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static std::string& text() {
    static std::string instance;
    return instance;
  }
};

class MungeWire : public ::testing::Test {
 protected:
  std::unique_ptr<EndpointServer> serve(Handler handler = echo()) {
    EndpointOptions options;
    options.bind_address = "127.0.0.1";
    options.port = 0;
    return std::move(*EndpointServer::start(options, munged_.authenticator(), std::move(handler)));
  }
  std::unique_ptr<Client> client_with(const MungeDaemon& munged, int port) {
    ClientOptions options;
    options.hosts = {{"127.0.0.1", port}};
    options.controller_uid = ::getuid();
    return std::move(*make_client(options, munged.authenticator()));
  }
  std::string sealed(const Envelope& message, int ttl_seconds = 60) {
    return *seal(message, *munged_.authenticator(ttl_seconds), ::getuid());
  }
  static Envelope numbered_request() {
    Envelope message = request();
    message.nonce = random_hex_id();
    return message;
  }

  MungeDaemon munged_;
};

TEST_F(MungeWire, ACapturedRequestIsWorthNothing) {
  std::atomic<int> handled{0};
  const auto server = serve([&](const Envelope&, const Caller&, const ReplyPtr& reply) {
    ++handled;
    reply->send({});
  });
  const std::string captured = http_post("/v1/query", sealed(numbered_request()));
  EXPECT_THAT(raw_exchange(server->port(), captured), HasSubstr(" 200 "));
  EXPECT_THAT(raw_exchange(server->port(), captured), HasSubstr(" 401 "));
  // A munged that was restarted has forgotten what it has seen.
  munged_.restart();
  LogCapture log;
  EXPECT_THAT(raw_exchange(server->port(), captured), HasSubstr(" 401 "));
  EXPECT_THAT(log.all(), HasSubstr("a replay"));
  EXPECT_EQ(handled, 1);
  EXPECT_TRUE(client_with(munged_, server->port())->call(request()).ok());
  EXPECT_EQ(handled, 2);
}

TEST_F(MungeWire, ACapturedRequestIsWorthNothingAtABackupThatTakesOver) {
  const MungeDaemon backup_host(munged_.key());  // it has never seen what the primary's has
  const std::string captured = http_post("/v1/query", sealed(numbered_request()));
  std::this_thread::sleep_for(3s);  // munge tells whole seconds
  std::atomic<int> handled{0};
  EndpointOptions options;
  options.bind_address = "127.0.0.1";
  options.port = 0;
  const auto backup =
      std::move(*EndpointServer::start(options, backup_host.authenticator(),
                                       [&](const Envelope&, const Caller&, const ReplyPtr& reply) {
                                         ++handled;
                                         reply->send({});
                                       }));
  LogCapture log;
  EXPECT_THAT(raw_exchange(backup->port(), captured), HasSubstr(" 401 "));
  EXPECT_THAT(log.all(), HasSubstr("before this controller began to serve"));
  EXPECT_EQ(handled, 0);
  EXPECT_TRUE(client_with(munged_, backup->port())->call(request()).ok());
}

TEST_F(MungeWire, AnotherClustersKeyIsRefusedOnBothSides) {
  const MungeDaemon foreign;
  const auto server = serve();
  const Status asked = client_with(foreign, server->port())->call(request()).status();
  EXPECT_EQ(asked.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(asked.message(), HasSubstr("munge key"));
}

TEST_F(MungeWire, TheCallerIsWhoMadeTheCredential) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const auto server = serve();
  constexpr uid_t kNobody = 65534;
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    const auto body = seal(numbered_request(), *munged_.authenticator(), 0);
    if (!body.ok()) ::_exit(2);
    ::_exit(::write(pipe_fds[1], body->data(), body->size()) > 0 ? 0 : 3);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  char body[8192];
  const ssize_t size = ::read(pipe_fds[0], body, sizeof body);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  ASSERT_GT(size, 0);
  const std::string answer = raw_exchange(
      server->port(), http_post("/v1/query", std::string_view(body, static_cast<size_t>(size))));
  EXPECT_THAT(answer, HasSubstr(" 200 "));
  // The answer is for nobody's eyes alone; root's munge refuses to open it.
  const auto opened =
      open_sealed(answer.substr(answer.find("\r\n\r\n") + 4), *munged_.authenticator());
  EXPECT_EQ(opened.status().code(), StatusCode::kPermissionDenied);
}

TEST_F(MungeWire, AnExpiredRequestIsRefusedAndItsAgeIsInTheLog) {
  const auto server = serve();
  const std::string late = http_post("/v1/query", sealed(numbered_request(), /*ttl_seconds=*/1));
  std::this_thread::sleep_for(2500ms);  // the time to live itself is what is tested
  LogCapture log;
  EXPECT_THAT(raw_exchange(server->port(), late), HasSubstr(" 401 "));
  EXPECT_THAT(log.all(), ContainsRegex("made [2-9][0-9]* s ago"));
}

TEST_F(MungeWire, NoSecretReachesALog) {
  const std::string secret = "hunter2-" + random_hex_id();
  LogCapture log;
  std::string answers;
  {
    const auto server = serve();
    RegisterRequest registration;
    registration.allocations = {{7, "n1", 8, ""}};
    registration.environment = {{"WANDB_API_KEY", secret}};
    Envelope message = numbered_request();
    message.type = kRegister;
    message.body = to_json(registration);
    EXPECT_TRUE(client_with(munged_, server->port())->call(message).ok());
    // What is refused is what gets logged: replayed, damaged, of wrong fields, garbage.
    const std::string body = sealed(message);
    std::string damaged = sealed(message);
    damaged[damaged.size() / 2] ^= 1;
    answers += body + "\n" + damaged + "\n";
    for (const std::string& sent : {body, body, damaged, body.substr(0, body.size() / 2)}) {
      answers += raw_exchange(server->port(), http_post("/v1/register", sent));
    }
    message.version = 99;
    answers += raw_exchange(server->port(), http_post("/v1/register", sealed(message)));
    Envelope wrong = numbered_request();
    wrong.type = secret;
    answers += raw_exchange(server->port(), http_post("/v1/register", sealed(wrong)));
    raw_exchange(server->port(), "POST /v1/register HTTP/1.1\r\nX: " + secret + "\r\nContent-");
    munged_.stop();
    raw_exchange(server->port(), http_post("/v1/register", body));
    const auto unreachable = client_with(munged_, 1);
    EXPECT_THAT(unreachable->call(message).status().message(), Not(HasSubstr(secret)));
  }
  const std::string lines = log.all();
  EXPECT_THAT(lines, HasSubstr("refused a request from 127.0.0.1")) << "the log was on";
  EXPECT_THAT(lines, Not(HasSubstr(secret)));
  EXPECT_THAT(lines, Not(HasSubstr("MUNGE:")));
  // No piece of a credential either.
  for (size_t at = answers.find("MUNGE:"); at != std::string::npos;
       at = answers.find("MUNGE:", at + 1)) {
    EXPECT_EQ(lines.find(answers.substr(at + 6, 24)), std::string::npos);
  }
}

}  // namespace
}  // namespace flextrain::protocol
