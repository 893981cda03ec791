// SPDX-License-Identifier: MIT
// Life of a request (E = event loop, W = worker, A = any thread):
//
//   E receiving ──end of body──▶ E suspended ──▶ W decode, handler ──▶ (waits, no thread)
//        │ bad, too large                                                │ A send()/timer/stop
//        ▼                                                               ▼
//   E refused                          E responding ◀──resume── W seal the response
//
// Lock order: Core::mutex before Request::mutex; neither is held while calling out (handler, auth,
// MHD_resume_connection).
#include "protocol/endpoint_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/log.h"

namespace flextrain::protocol {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{500};  // how often slow connections are looked for

class SignalBlock {  // threads made inside it inherit a full mask
 public:
  SignalBlock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

 private:
  sigset_t old_;
};

// A TCP connection, for the limit on slow peers. Guarded by Core::mutex.
struct Connection {
  int fd = -1;
  Clock::time_point since;  // start of the present phase
  bool waiting = false;     // suspended: the wait is ours, not the peer's
};

struct Request {
  // Event loop only:
  std::string type;  // from the URL
  bool dispatched = false;
  bool refused = false;
  Connection* connection_entry = nullptr;
  // Set before dispatch, constant afterwards:
  MHD_Connection* connection = nullptr;
  std::string body;
  std::atomic<size_t> counted{0};  // bytes of `body` in Core::buffered_bytes
  Caller caller;
  // Written by the worker before the handler runs:
  int version = kProtocolVersion;
  std::string nonce;

  std::mutex mutex;
  bool answered = false;  // somebody won the right to answer
  bool finished = false;  // http_status and http_body are set, the connection is resumed
  unsigned http_status = 0;
  std::string http_body;
  Clock::time_point received;
  std::optional<Envelope> timeout_response;
  uint64_t timer_generation = 0;
};
using RequestPtr = std::shared_ptr<Request>;

struct Task {
  RequestPtr request;
  std::optional<Envelope> response;  // set: seal and send it; else: decode and call the handler
};

struct Timer {
  RequestPtr request;
  uint64_t generation = 0;
};

struct Core : std::enable_shared_from_this<Core> {
  EndpointOptions options;
  std::shared_ptr<Authenticator> auth;
  Handler handler;

  mutable std::mutex mutex;
  std::condition_variable work, timer, idle;
  bool stopping = false;
  std::deque<Task> tasks;
  std::multimap<Clock::time_point, Timer> timers;
  std::set<RequestPtr> suspended;  // from suspend until the event loop sees them again
  std::set<Connection*> connections;
  int handlers_running = 0, workers_running = 0;

  std::atomic<size_t> buffered_bytes{0};
  std::atomic<int64_t> requests{0}, refused{0}, timed_out{0};

  // Takes the request's bytes out of the account; at most once, from whoever comes first.
  void uncount(Request& request) { buffered_bytes.fetch_sub(request.counted.exchange(0)); }
  void finish(const RequestPtr& request, unsigned status, std::string body);
  bool answer(const RequestPtr& request, Envelope response);
  void set_timer(const RequestPtr& request, milliseconds timeout, Envelope response);
  void decode_and_handle(const RequestPtr& request);
  void seal_and_finish(const RequestPtr& request, Envelope response);
  void run_worker();
  void run_timer();
};

class ReplyImpl : public Reply {
 public:
  ReplyImpl(std::shared_ptr<Core> core, RequestPtr request)
      : core_(std::move(core)), request_(std::move(request)) {}
  ~ReplyImpl() override {
    {
      const std::lock_guard lock(request_->mutex);
      if (request_->answered || request_->timeout_response.has_value()) return;
    }
    try {
      core_->answer(request_, error_response("the controller dropped the request"));
    } catch (...) {  // out of memory: the timer's sweep answers
    }
  }
  bool send(Envelope response) override { return core_->answer(request_, std::move(response)); }
  void send_after(milliseconds timeout, Envelope response) override {
    core_->set_timer(request_, timeout, std::move(response));
  }
  bool answered() const override {
    const std::lock_guard lock(request_->mutex);
    return request_->answered;
  }

 private:
  std::shared_ptr<Core> core_;
  RequestPtr request_;
};

// Gives the HTTP answer to the event loop. Only the first call per request has an effect.
void Core::finish(const RequestPtr& request, unsigned status, std::string body) {
  {
    const std::lock_guard lock(request->mutex);
    if (request->finished) return;
    request->answered = true;
    request->finished = true;
    request->http_status = status;
    request->http_body = std::move(body);
    request->timeout_response.reset();
  }
  MHD_resume_connection(request->connection);
}

bool Core::answer(const RequestPtr& request, Envelope response) {
  {
    const std::lock_guard lock(request->mutex);
    if (request->answered) return false;
    request->answered = true;
  }
  const std::lock_guard lock(mutex);
  if (stopping) return false;  // stop() answers all that is suspended
  tasks.push_back({request, std::move(response)});
  work.notify_one();
  return true;
}

void Core::set_timer(const RequestPtr& request, milliseconds timeout, Envelope response) {
  const Clock::time_point at =
      Clock::now() + std::clamp(timeout, milliseconds(0), options.max_deferred);
  const std::lock_guard lock(mutex);
  uint64_t generation = 0;
  {
    const std::lock_guard request_lock(request->mutex);
    if (request->answered) return;
    request->timeout_response = std::move(response);
    generation = ++request->timer_generation;
  }
  timers.emplace(at, Timer{request, generation});
  timer.notify_one();
}

void Core::decode_and_handle(const RequestPtr& request) {
  Result<Opened> opened = open_sealed(request->body, *auth);
  request->body.clear();
  request->body.shrink_to_fit();
  uncount(*request);
  if (!opened.ok()) {
    refused.fetch_add(1);
    log_debug("endpoint: refused a request from {}: {}", request->caller.address,
              opened.status().to_string());
    const StatusCode code = opened.status().code();
    return finish(request,
                  code == StatusCode::kPermissionDenied ? MHD_HTTP_UNAUTHORIZED
                  : code == StatusCode::kUnavailable    ? MHD_HTTP_SERVICE_UNAVAILABLE
                                                        : MHD_HTTP_BAD_REQUEST,
                  "");
  }
  const Envelope& envelope = opened->envelope;
  request->caller.uid = opened->uid;
  request->caller.gid = opened->gid;
  request->nonce = envelope.nonce;
  request->version = std::min(envelope.version, kProtocolVersion);
  auto reply = std::make_shared<ReplyImpl>(shared_from_this(), request);
  if (envelope.version < kOldestProtocolVersion || envelope.version > kProtocolVersion) {
    reply->send(error_response(
        fmt::format("protocol version {} is not served; this controller serves {} to {}: use "
                    "flextrain programs of its release",
                    envelope.version, kOldestProtocolVersion, kProtocolVersion)));
    return;
  }
  if (envelope.type != request->type || envelope.nonce.empty()) {
    reply->send(
        error_response("malformed request: its type does not match the address, or it has "
                       "no nonce"));
    return;
  }
  {
    const std::lock_guard lock(mutex);
    if (stopping) return;
    ++handlers_running;
  }
  try {
    handler(envelope, request->caller, reply);
  } catch (const std::exception& error) {
    log_error("endpoint: the handler of '{}' failed: {}", envelope.type, error.what());
    reply->send(error_response("internal error in the controller; see its log"));
  } catch (...) {
    log_error("endpoint: the handler of '{}' failed", envelope.type);
    reply->send(error_response("internal error in the controller; see its log"));
  }
  const std::lock_guard lock(mutex);
  --handlers_running;
  idle.notify_all();
}

void Core::seal_and_finish(const RequestPtr& request, Envelope response) {
  response.version = request->version;
  response.type = request->type;
  response.nonce = request->nonce;
  Result<std::string> body = seal(response, *auth, request->caller.uid);
  if (!body.ok() && body.status().code() == StatusCode::kResourceExhausted) {
    response.body = nullptr;
    response.error = fmt::format("{}; ask for less", body.status().message());
    body = seal(response, *auth, request->caller.uid);
  }
  if (!body.ok()) {
    log_warning("endpoint: cannot answer a '{}' request: {}", request->type,
                body.status().to_string());
    return finish(request, MHD_HTTP_SERVICE_UNAVAILABLE, "");
  }
  finish(request, MHD_HTTP_OK, std::move(*body));
}

void Core::run_worker() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (tasks.empty()) {
      work.wait(lock);
      continue;
    }
    Task task = std::move(tasks.front());
    tasks.pop_front();
    lock.unlock();
    try {
      if (task.response.has_value()) {
        seal_and_finish(task.request, std::move(*task.response));
      } else {
        decode_and_handle(task.request);
      }
    } catch (...) {  // out of memory
      finish(task.request, MHD_HTTP_INTERNAL_SERVER_ERROR, "");
    }
    task = {};
    lock.lock();
  }
  --workers_running;
  idle.notify_all();
}

void Core::run_timer() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    const Clock::time_point now = Clock::now();
    while (!timers.empty() && timers.begin()->first <= now) {
      const Timer due = timers.begin()->second;
      timers.erase(timers.begin());
      const std::lock_guard request_lock(due.request->mutex);
      if (due.request->answered || due.request->timer_generation != due.generation) continue;
      due.request->answered = true;
      tasks.push_back({due.request, std::move(*due.request->timeout_response)});
      due.request->timeout_response.reset();
      work.notify_one();
    }
    for (const RequestPtr& request : suspended) {  // answers nobody gave
      const std::lock_guard request_lock(request->mutex);
      if (request->answered || now - request->received < options.max_deferred + milliseconds(500)) {
        continue;
      }
      request->answered = true;
      timed_out.fetch_add(1);
      tasks.push_back({request, error_response("the controller did not answer in time")});
      work.notify_one();
    }
    for (Connection* connection : connections) {
      // The event loop sees the shutdown as the peer's and closes; the fd stays ours until the
      // entry leaves `connections`, which takes this mutex.
      if (!connection->waiting && now - connection->since > options.io_timeout) {
        ::shutdown(connection->fd, SHUT_RDWR);
      }
    }
    Clock::time_point next = now + std::min(kTick, options.io_timeout / 2);
    if (!timers.empty()) next = std::min(next, timers.begin()->first);
    timer.wait_until(lock, next);
  }
}

std::string peer_address(MHD_Connection* connection) {
  const MHD_ConnectionInfo* info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  char text[INET6_ADDRSTRLEN] = "?";
  if (info != nullptr && info->client_addr != nullptr && info->client_addr->sa_family == AF_INET) {
    const auto* address = reinterpret_cast<const sockaddr_in*>(info->client_addr);
    inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
  }
  return text;
}

MHD_Result queue_response(MHD_Connection* connection, unsigned status, std::string& body) {
  MHD_Response* response =
      MHD_create_response_from_buffer(body.size(), body.data(), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain");
  const MHD_Result result = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return result;
}

MHD_Result refuse(Core& core, MHD_Connection* connection, Request& request, unsigned status) {
  core.refused.fetch_add(1);
  request.refused = true;
  std::string none;
  return queue_response(connection, status, none);
}

MHD_Result on_headers(Core& core, MHD_Connection* connection, const char* url, const char* method,
                      void** request_slot) {
  auto request = std::make_shared<Request>();
  request->connection = connection;
  request->caller.address = peer_address(connection);
  const MHD_ConnectionInfo* info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  request->connection_entry = static_cast<Connection*>(info->socket_context);
  *request_slot = new RequestPtr(request);
  core.requests.fetch_add(1);
  if (std::strcmp(method, "POST") != 0) {
    return refuse(core, connection, *request, MHD_HTTP_METHOD_NOT_ALLOWED);
  }
  if (std::strncmp(url, "/v1/", 4) != 0 || std::strlen(url) > 64) {
    return refuse(core, connection, *request, MHD_HTTP_NOT_FOUND);
  }
  request->type = url + 4;
  const char* length =
      MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
  if (length != nullptr && std::strtoull(length, nullptr, 10) > core.options.max_body_bytes) {
    return refuse(core, connection, *request, MHD_HTTP_CONTENT_TOO_LARGE);
  }
  return MHD_YES;
}

MHD_Result on_request(void* cls, MHD_Connection* connection, const char* url, const char* method,
                      const char*, const char* upload, size_t* upload_size, void** request_slot) {
  Core& core = *static_cast<Core*>(cls);
  try {
    if (*request_slot == nullptr) {
      return on_headers(core, connection, url, method, request_slot);
    }
    const RequestPtr& request = *static_cast<RequestPtr*>(*request_slot);
    if (request->refused) {
      *upload_size = 0;
      return MHD_YES;
    }
    if (*upload_size > 0) {
      const size_t size = *upload_size;
      // Closing is all that can be done in the middle of an upload.
      if (request->body.size() + size > core.options.max_body_bytes ||
          core.buffered_bytes.load() + size > core.options.max_buffered_bytes) {
        core.refused.fetch_add(1);
        return MHD_NO;
      }
      request->body.append(upload, size);
      core.buffered_bytes.fetch_add(size);
      request->counted.fetch_add(size);
      *upload_size = 0;
      return MHD_YES;
    }
    if (!request->dispatched) {
      const std::lock_guard lock(core.mutex);
      if (core.stopping) {
        return refuse(core, connection, *request, MHD_HTTP_SERVICE_UNAVAILABLE);
      }
      request->dispatched = true;
      request->received = Clock::now();
      request->connection_entry->waiting = true;
      core.suspended.insert(request);
      MHD_suspend_connection(connection);
      core.tasks.push_back({request, std::nullopt});
      core.work.notify_one();
      return MHD_YES;
    }
    std::string body;
    unsigned status = 0;
    {
      const std::lock_guard lock(core.mutex);
      request->connection_entry->waiting = false;
      request->connection_entry->since = Clock::now();
      core.suspended.erase(request);
      core.idle.notify_all();
    }
    {
      const std::lock_guard lock(request->mutex);
      body = std::move(request->http_body);
      status = request->http_status;
    }
    return queue_response(connection, status, body);
  } catch (...) {  // out of memory: close this connection
    return MHD_NO;
  }
}

void on_completed(void* cls, MHD_Connection*, void** request_slot, MHD_RequestTerminationCode) {
  auto* slot = static_cast<RequestPtr*>(*request_slot);
  if (slot == nullptr) return;
  *request_slot = nullptr;
  Core& core = *static_cast<Core*>(cls);
  core.uncount(**slot);
  {
    const std::lock_guard lock(core.mutex);
    core.suspended.erase(*slot);  // only when the event loop closed it right after the resume
    core.idle.notify_all();
  }
  delete slot;
}

void on_connection(void* cls, MHD_Connection* connection, void** socket_context,
                   MHD_ConnectionNotificationCode code) {
  Core& core = *static_cast<Core*>(cls);
  const std::lock_guard lock(core.mutex);
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    auto* entry = new Connection{info->connect_fd, Clock::now(), false};
    core.connections.insert(entry);
    *socket_context = entry;
  } else if (auto* entry = static_cast<Connection*>(*socket_context)) {
    core.connections.erase(entry);
    delete entry;
    *socket_context = nullptr;
  }
}

void on_library_log(void*, const char* format, va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  log_debug("endpoint: {}", line);
}

class EndpointServerImpl final : public EndpointServer {
 public:
  EndpointServerImpl(const EndpointOptions& options, std::shared_ptr<Authenticator> auth,
                     Handler handler)
      : core_(std::make_shared<Core>()) {
    core_->options = options;
    core_->auth = std::move(auth);
    core_->handler = std::move(handler);
  }
  ~EndpointServerImpl() override { stop(); }

  Status start_all();
  int port() const override { return port_; }
  void stop() override;
  Statistics statistics() const override {
    const std::lock_guard lock(core_->mutex);
    return {core_->requests.load(), core_->refused.load(), core_->timed_out.load(),
            static_cast<int>(core_->connections.size()), static_cast<int>(core_->suspended.size())};
  }

 private:
  void stop_event_loop();

  const std::shared_ptr<Core> core_;
  std::mutex stop_mutex_;
  bool stopped_ = false;
  MHD_Daemon* daemon_ = nullptr;
  int port_ = 0;
  std::vector<std::thread> workers_;
  std::thread timer_;
};

Status EndpointServerImpl::start_all() {
  EndpointOptions& options = core_->options;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(options.port));
  if (options.bind_address.empty()) {
    address.sin_addr.s_addr = htonl(INADDR_ANY);
  } else if (inet_pton(AF_INET, options.bind_address.c_str(), &address.sin_addr) != 1) {
    return invalid_argument("'{}' is not an IPv4 address to bind the endpoint to",
                            options.bind_address);
  }
  // Slurm's own daemons must not run out of descriptors because of us.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
    const auto half = static_cast<int>(std::min<rlim_t>(files.rlim_cur / 2, 1 << 20));
    options.max_connections = std::max(16, std::min(options.max_connections, half));
  }
  const SignalBlock block;
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG,
      static_cast<uint16_t>(options.port), nullptr, nullptr, &on_request, core_.get(),
      MHD_OPTION_EXTERNAL_LOGGER, &on_library_log, nullptr, MHD_OPTION_SOCK_ADDR,
      reinterpret_cast<sockaddr*>(&address), MHD_OPTION_NOTIFY_COMPLETED, &on_completed,
      core_.get(), MHD_OPTION_NOTIFY_CONNECTION, &on_connection, core_.get(),
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(options.max_connections),
      MHD_OPTION_PER_IP_CONNECTION_LIMIT,
      static_cast<unsigned>(options.max_connections_per_address),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, size_t{16} << 10, MHD_OPTION_END);
  if (daemon_ == nullptr) {
    return unavailable(
        "cannot open the endpoint on port {}: {}; is another program on it? "
        "EndpointPort in flextrain.conf chooses another one",
        options.port, std::strerror(errno));
  }
  const MHD_DaemonInfo* info = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT);
  port_ = info != nullptr ? info->port : options.port;
  try {
    core_->workers_running = std::max(1, options.workers);
    for (int i = 0; i < std::max(1, options.workers); ++i) {
      workers_.emplace_back([core = core_] { core->run_worker(); });
    }
    timer_ = std::thread([core = core_] { core->run_timer(); });
  } catch (const std::exception& error) {
    core_->workers_running = static_cast<int>(workers_.size());
    return unavailable("cannot start the endpoint's threads: {}", error.what());
  }
  return {};
}

void EndpointServerImpl::stop_event_loop() {
  if (daemon_ == nullptr) return;
  std::vector<RequestPtr> waiting;
  {
    const std::lock_guard lock(core_->mutex);
    waiting.assign(core_->suspended.begin(), core_->suspended.end());
  }
  for (const RequestPtr& request : waiting) {
    core_->finish(request, MHD_HTTP_SERVICE_UNAVAILABLE, "");
  }
  std::unique_lock lock(core_->mutex);
  const bool all_resumed = core_->idle.wait_for(lock, core_->options.stop_timeout,
                                                [&] { return core_->suspended.empty(); });
  lock.unlock();
  if (all_resumed) {
    MHD_stop_daemon(daemon_);
  } else {
    // MHD_stop_daemon aborts the process over suspended connections: rather leak the daemon.
    log_error("endpoint: connections did not resume; its event loop is left behind");
    MHD_quiesce_daemon(daemon_);
    static std::vector<std::shared_ptr<Core>>* leaked = new std::vector<std::shared_ptr<Core>>();
    leaked->push_back(core_);
  }
  daemon_ = nullptr;
}

void EndpointServerImpl::stop() {
  const std::lock_guard stop_lock(stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  {
    std::unique_lock lock(core_->mutex);
    core_->stopping = true;
    core_->work.notify_all();
    core_->timer.notify_all();
    core_->idle.wait(lock, [&] { return core_->handlers_running == 0; });
  }
  stop_event_loop();
  bool workers_done = false;
  {
    std::unique_lock lock(core_->mutex);
    workers_done = core_->idle.wait_for(lock, core_->options.stop_timeout,
                                        [&] { return core_->workers_running == 0; });
    core_->tasks.clear();
    core_->timers.clear();
  }
  for (std::thread& worker : workers_) {
    // One stuck in munge keeps the Core alive and touches nothing else.
    workers_done ? worker.join() : worker.detach();
  }
  if (timer_.joinable()) timer_.join();
}

}  // namespace

Envelope error_response(std::string error) {
  Envelope response;
  response.error = std::move(error);
  return response;
}

Result<std::unique_ptr<EndpointServer>> EndpointServer::start(const EndpointOptions& options,
                                                              std::shared_ptr<Authenticator> auth,
                                                              Handler handler) {
  auto server = std::make_unique<EndpointServerImpl>(options, std::move(auth), std::move(handler));
  RETURN_IF_ERROR(server->start_all());
  return std::unique_ptr<EndpointServer>(std::move(server));
}

}  // namespace flextrain::protocol
