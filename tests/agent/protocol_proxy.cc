// SPDX-License-Identifier: MIT
// Stands between agents and controller and breaks the wire in ways that can be named.
//
//   protocol_proxy LISTEN_PORT HOST:PORT RULES [LOG [SEED]]
//
// LISTEN_PORT 0 takes a free one; the port is the first line on standard output. RULES is a file
// that is read anew for every request; a missing or empty one passes everything. One rule a line:
//
//   TYPE STAGE ACTION [SECONDS] [times=N] [p=0.0…1.0]
//
// TYPE      register, poll, progress, scale_table, report, bye, query, or *
// STAGE     request (agent → controller) or response
// ACTION    drop       request: it never arrives; response: it arrived, but nobody hears the answer
//           delay S    S seconds late
//           late S     request only: the sender's connection breaks, the message arrives S seconds
//                      later, after the sender's next try: reordered and doubled
//           duplicate  request: sent twice with the same credential; response: served again to the
//                      next request of this type, which is not passed on
// times=N   the first N times only (counted from the start, per line of this text)
// p=X       with this probability; SEED makes runs repeatable
//
// The first matching rule of a stage is applied. LOG gets a line per message: seconds since the
// start, type, stage, what was done, bytes. Point jobs at it with FLEXTRAIN_CONTROLLER=host:port;
// companions inherit that. Bodies stay sealed: the proxy knows types and sizes only.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostBytes = size_t{64} << 20;

struct Action {
  std::string name;  // "" = pass on
  double seconds = 0;
};

std::mutex mutex;
std::string rules_path, upstream_host, upstream_port;
std::FILE* log_file = nullptr;
std::mt19937 generator;
std::map<std::string, int> used;             // rule text → times applied
std::map<std::string, std::string> replays;  // type → a response to be served again
const Clock::time_point start = Clock::now();

void note(const std::string& type, const std::string& stage, const std::string& what,
          size_t bytes) {
  const std::lock_guard lock(mutex);
  if (log_file == nullptr) return;
  fmt::print(log_file, "{:.3f} {} {} {} {}\n",
             std::chrono::duration<double>(Clock::now() - start).count(), type, stage, what, bytes);
  std::fflush(log_file);
}

Action action_for(const std::string& type, const std::string& stage) {
  const std::lock_guard lock(mutex);
  std::ifstream rules(rules_path);
  for (std::string line; std::getline(rules, line);) {
    std::istringstream words(line);
    std::string rule_type, rule_stage, word;
    Action action;
    if (!(words >> rule_type >> rule_stage >> action.name) || rule_type[0] == '#') continue;
    if ((rule_type != "*" && rule_type != type) || rule_stage != stage) continue;
    int times = -1;
    double probability = 1;
    while (words >> word) {
      if (word.rfind("times=", 0) == 0) {
        times = std::atoi(word.c_str() + 6);
      } else if (word.rfind("p=", 0) == 0) {
        probability = std::atof(word.c_str() + 2);
      } else {
        action.seconds = std::atof(word.c_str());
      }
    }
    if (times >= 0 && used[line] >= times) continue;
    if (std::uniform_real_distribution<>(0, 1)(generator) > probability) continue;
    ++used[line];
    return action;
  }
  return {};
}

void pause_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// One whole HTTP message with a Content-Length, or nothing.
std::optional<std::string> read_message(int fd) {
  std::string data;
  size_t wanted = std::string::npos;
  char buffer[65536];
  while (data.size() < wanted && data.size() < kMostBytes) {
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) return std::nullopt;
    data.append(buffer, static_cast<size_t>(got));
    const size_t head = data.find("\r\n\r\n");
    if (wanted != std::string::npos || head == std::string::npos) continue;
    std::string lower = data.substr(0, head);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const size_t at = lower.find("\r\ncontent-length:");
    const size_t body =
        at == std::string::npos ? 0 : std::strtoul(lower.c_str() + at + 17, nullptr, 10);
    wanted = head + 4 + body;
    if (lower.find("\r\nexpect: 100-continue") != std::string::npos && data.size() < wanted) {
      static constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
      (void)::send(fd, kContinue, sizeof kContinue - 1, MSG_NOSIGNAL);
    }
  }
  return data;
}

bool write_message(int fd, const std::string& data) {
  for (size_t at = 0; at < data.size();) {
    const ssize_t sent = ::send(fd, data.data() + at, data.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += static_cast<size_t>(sent);
  }
  return true;
}

std::optional<std::string> ask_upstream(const std::string& request) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(upstream_host.c_str(), upstream_port.c_str(), &hints, &found) != 0) {
    return std::nullopt;
  }
  std::optional<std::string> response;
  for (const addrinfo* one = found; one != nullptr && !response; one = one->ai_next) {
    const int fd = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0 && write_message(fd, request)) {
      response = read_message(fd);
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  return response;
}

std::string type_of(const std::string& request) {  // "POST /v1/poll HTTP/1.1"
  const size_t at = request.find("/v1/");
  if (at == std::string::npos || at > request.find("\r\n")) return "?";
  return request.substr(at + 4, request.find(' ', at) - at - 4);
}

void serve(int fd) {
  const std::optional<std::string> request = read_message(fd);
  if (!request) {
    ::close(fd);
    return;
  }
  const std::string type = type_of(*request);
  {
    std::unique_lock lock(mutex);
    if (const auto replay = replays.find(type); replay != replays.end()) {
      const std::string again = replay->second;
      replays.erase(replay);
      lock.unlock();
      note(type, "response", "replayed", again.size());
      (void)write_message(fd, again);
      ::close(fd);
      return;
    }
  }
  const Action out = action_for(type, "request");
  note(type, "request", out.name.empty() ? "pass" : out.name, request->size());
  if (out.name == "drop" || out.name == "late") {
    ::close(fd);
    if (out.name == "drop") return;
    pause_for(out.seconds);
    const auto unheard = ask_upstream(*request);
    note(type, "request", "arrived-late", unheard ? unheard->size() : 0);
    return;
  }
  if (out.name == "delay") pause_for(out.seconds);
  const std::optional<std::string> response = ask_upstream(*request);
  if (out.name == "duplicate") {
    const auto second = ask_upstream(*request);
    note(type, "request", "second-answered", second ? second->size() : 0);
  }
  if (!response) {
    note(type, "response", "none", 0);
    ::close(fd);
    return;
  }
  const Action back = action_for(type, "response");
  note(type, "response", back.name.empty() ? "pass" : back.name, response->size());
  if (back.name == "delay") pause_for(back.seconds);
  if (back.name == "duplicate") {
    const std::lock_guard lock(mutex);
    replays[type] = *response;
  }
  if (back.name != "drop") (void)write_message(fd, *response);
  ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 6) {
    fmt::print(stderr, "usage: protocol_proxy LISTEN_PORT HOST:PORT RULES [LOG [SEED]]\n");
    return 64;
  }
  const std::string upstream = argv[2];
  const size_t colon = upstream.rfind(':');
  if (colon == std::string::npos) {
    fmt::print(stderr, "protocol_proxy: '{}' is not HOST:PORT\n", upstream);
    return 64;
  }
  upstream_host = upstream.substr(0, colon);
  upstream_port = upstream.substr(colon + 1);
  rules_path = argv[3];
  if (argc > 4) log_file = std::fopen(argv[4], "ae");
  if (argc > 5) generator.seed(static_cast<unsigned>(std::atoi(argv[5])));

  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[1])));
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 256) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("protocol_proxy: cannot listen");
    return 1;
  }
  fmt::print("{}\n", ntohs(address.sin_port));
  std::fflush(stdout);
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) std::thread(serve, fd).detach();
  }
}
