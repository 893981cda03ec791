// SPDX-License-Identifier: MIT
// The real endpoint on a loopback port. First byte: bits 0-2 into how many pieces the bytes are cut
// when sent, bit 3 whether the sender vanishes (RST) instead of reading the answer. What the server
// sends back must be HTTP.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "protocol/endpoint_server.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/plain_auth.h"

namespace flextrain::protocol {
namespace {

using std::chrono::milliseconds;

// For an answer; to half a request there is none before the server's io_timeout.
constexpr int kPatienceMilliseconds = 20;

EndpointServer& server() {
  static const std::unique_ptr<EndpointServer> instance = [] {
    set_log_sink([](LogLevel, std::string_view) {});
    set_log_level(LogLevel::kDebug);
    EndpointOptions options;
    options.bind_address = "127.0.0.1";
    options.port = 0;
    options.max_body_bytes = 1 << 20;
    options.max_deferred = milliseconds(20);
    auto started =
        EndpointServer::start(options, std::make_shared<fuzz::PlainAuthenticator>(),
                              [](const Envelope& request, const Caller&, const ReplyPtr& reply) {
                                Envelope response;
                                response.body = request.body;
                                if (request.type == kPoll)
                                  reply->send_after(milliseconds(2), response);
                                if (request.type == kReport)
                                  throw std::runtime_error("a handler that throws");
                                if (request.type == kQuery)
                                  response.body = std::string(200'000, 'x');
                                if (request.type != kPoll && request.type != kBye)
                                  reply->send(response);
                              });  // a bye is dropped
    FUZZ_REQUIRE(started.ok());
    return std::move(*started);
  }();
  return *instance;
}

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FUZZ_REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

// An RST at the end, or loopback runs out of ports in TIME_WAIT.
void vanish(int fd) {
  const linger now{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(fd);
}

}  // namespace
}  // namespace flextrain::protocol

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain::protocol;
  if (size < 2) return 0;
  const size_t pieces = (data[0] & 7) + 1;
  const bool reads = (data[0] & 8) == 0;
  std::string_view text = flextrain::fuzz::text_of(data + 1, size - 1);
  const int fd = connect_to(server().port());
  const size_t step = std::max<size_t>(1, (text.size() + pieces - 1) / pieces);
  for (; !text.empty(); text.remove_prefix(std::min(step, text.size()))) {
    const std::string_view piece = text.substr(0, step);
    if (::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
  }
  if (reads) {
    ::shutdown(fd, SHUT_WR);
    std::string answer;
    char buffer[65536];
    pollfd readable{fd, POLLIN, 0};
    while (::poll(&readable, 1, kPatienceMilliseconds) > 0) {
      const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      answer.append(buffer, static_cast<size_t>(got));
    }
    FUZZ_REQUIRE(answer.empty() || answer.starts_with("HTTP/1."));
  }
  vanish(fd);
  return 0;
}
