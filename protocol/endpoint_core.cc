// SPDX-License-Identifier: MIT
#include "protocol/endpoint_core.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace flextrain::protocol::endpoint {
namespace {

constexpr milliseconds kTick{500};  // how often slow connections are looked for
// Longer than a credential of ours lives (MungeOptions::ttl_seconds), clocks apart included.
constexpr std::chrono::seconds kReplayMemory{300};
constexpr std::chrono::seconds kTellRefusalsEvery{60};
// munge tells whole seconds at both ends.
constexpr std::chrono::seconds kAgeRounding{1};

class ReplyImpl : public Reply {
 public:
  ReplyImpl(std::shared_ptr<Core> core, RequestPtr request)
      : core_(std::move(core)), request_(std::move(request)) {}
  ~ReplyImpl() override {
    {
      const std::lock_guard lock(request_->mutex);
      if (request_->answered || request_->timeout_text.has_value()) return;
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

}  // namespace

Core::Core(const EndpointOptions& endpoint_options, std::shared_ptr<Authenticator> authenticator,
           Handler request_handler)
    : options(endpoint_options),
      auth(std::move(authenticator)),
      handler(std::move(request_handler)),
      budget(endpoint_options.max_buffered_bytes),
      replays(kReplayMemory),
      wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Core::~Core() {
  if (wake_fd >= 0) ::close(wake_fd);
}

void Core::wake_loop() const {
  const uint64_t one = 1;  // a full counter wakes as well
  [[maybe_unused]] const ssize_t written = ::write(wake_fd, &one, sizeof one);
}

void Core::enqueue(Task task) {
  (task.request->type == kQuery ? queries : tasks).push_back(std::move(task));
  work.notify_one();
}

void Core::finish(const RequestPtr& request, unsigned status, std::string body) {
  {
    const std::lock_guard lock(request->mutex);
    if (request->finished) return;
    // Responses that nobody reads must not pile up.
    if (!budget.set(request->response_share, request->caller.address, body.size())) {
      status = MHD_HTTP_SERVICE_UNAVAILABLE;
      body.clear();
    }
    request->answered = true;
    request->finished = true;
    request->http_status = status;
    request->http_body = std::move(body);
    request->timeout_text.reset();
  }
  MHD_resume_connection(request->connection);
  wake_loop();
}

bool Core::answer(const RequestPtr& request, Envelope response) {
  {
    const std::lock_guard lock(request->mutex);
    if (request->answered) return false;
    request->answered = true;
  }
  return accept_answer(request, std::move(response));
}

std::string Core::answer_text(const RequestPtr& request, Envelope& response) const {
  {
    const std::lock_guard lock(request->mutex);
    response.version = request->version;
    response.nonce = request->nonce;
  }
  response.type = request->type;
  std::string text = envelope_to_text(response);
  if (const Status status = check_message_size(response.type, text); !status.ok()) {
    response.body = nullptr;
    response.error = fmt::format("{}; ask for less", status.message());
    text = envelope_to_text(response);
  }
  return text;
}

bool Core::accept_answer(const RequestPtr& request, Envelope response) {
  try {
    std::string text = answer_text(request, response);
    response = {};
    bool room = false;
    {
      const std::lock_guard lock(request->mutex);
      if (request->finished) return false;  // by stop()
      room = request->decoded &&
             budget.set(request->response_share, request->caller.address, text.size());
    }
    if (room) {
      const std::lock_guard lock(mutex);
      if (stopping) return false;  // stop() answers all that is suspended
      enqueue({request, std::move(text)});
      return true;
    }
  } catch (...) {  // out of memory
  }
  finish(request, MHD_HTTP_SERVICE_UNAVAILABLE, "");
  return true;
}

void Core::set_timer(const RequestPtr& request, milliseconds timeout, Envelope response) {
  const Clock::time_point at =
      Clock::now() + std::clamp(timeout, milliseconds(0), options.max_deferred);
  std::string text = answer_text(request, response);
  if (text.size() > ByteBudget::kFreeBytes) {  // these wait by the thousand and are not counted
    Envelope refusal = error_response("the controller's answer is too large to be deferred");
    text = answer_text(request, refusal);
  }
  const std::lock_guard lock(mutex);
  uint64_t generation = 0;
  {
    const std::lock_guard request_lock(request->mutex);
    if (request->answered) return;
    request->timeout_text = std::move(text);
    generation = ++request->timer_generation;
  }
  timers.emplace(at, Timer{request, generation});
  timer.notify_one();
}

// An operator must hear of clocks that went apart, but not once for every poll of every agent.
void Core::tell_refusal(const Request& request, const Status& why) {
  log_debug("endpoint: refused a request from {}: {}", request.caller.address, why.to_string());
  int64_t count = 0;
  {
    const std::lock_guard lock(mutex);
    ++refusals_untold;
    const Clock::time_point now = Clock::now();
    if (now - refusals_told < kTellRefusalsEvery && refusals_told != Clock::time_point()) return;
    refusals_told = now;
    count = std::exchange(refusals_untold, 0);
  }
  log_warning("endpoint: {} request(s) refused, the last from {}: {}", count,
              request.caller.address, why.message());
}

void Core::decode_and_handle(const RequestPtr& request) {
  Result<Opened> opened = open_sealed(request->body, *auth);
  request->body.clear();
  request->body.shrink_to_fit();
  request->body_share.release();
  if (opened.ok() && opened->age > Clock::now() - started + kAgeRounding) {
    opened = permission_denied(
        "a request of uid {} was made before this controller began to serve: captured on its way "
        "to another one, or its host's clock is behind",
        opened->uid);
  }
  if (opened.ok() && !opened->envelope.nonce.empty() &&
      !replays.first_time(opened->uid, opened->envelope.nonce, Clock::now())) {
    opened = permission_denied("a request of uid {} came a second time: a replay", opened->uid);
  }
  if (!opened.ok()) {
    refused.fetch_add(1);
    tell_refusal(*request, opened.status());
    const StatusCode code = opened.status().code();
    return finish(request,
                  code == StatusCode::kPermissionDenied ? MHD_HTTP_UNAUTHORIZED
                  : code == StatusCode::kUnavailable    ? MHD_HTTP_SERVICE_UNAVAILABLE
                                                        : MHD_HTTP_BAD_REQUEST,
                  "");
  }
  const Envelope& envelope = opened->envelope;
  {
    const std::lock_guard lock(request->mutex);
    request->caller.uid = opened->uid;
    request->caller.gid = opened->gid;
    request->caller.bytes = opened->bytes;
    request->nonce = envelope.nonce;
    request->version = std::min(envelope.version, kProtocolVersion);
    request->decoded = true;
  }
  const auto reply = std::make_shared<ReplyImpl>(shared_from_this(), request);
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
  call_handler(envelope, request, reply);
}

void Core::call_handler(const Envelope& envelope, const RequestPtr& request,
                        const ReplyPtr& reply) {
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

void Core::seal_and_finish(const RequestPtr& request, std::string text) {
  Result<std::string> body = seal_text(text, *auth, request->caller.uid);
  text = {};
  if (!body.ok()) {
    log_warning("endpoint: cannot answer a '{}' request: {}", request->type,
                body.status().to_string());
    return finish(request, MHD_HTTP_SERVICE_UNAVAILABLE, "");
  }
  finish(request, MHD_HTTP_OK, std::move(*body));
}

// Where a worker finds something to do, null when there is nothing; with `mutex` held.
std::deque<Task>* Core::next_queue() {
  if (!tasks.empty()) return &tasks;
  const int most = std::max(1, options.workers - 1);
  return !queries.empty() && queries_running < most ? &queries : nullptr;
}

void Core::run_worker() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    std::deque<Task>* const queue = next_queue();
    if (queue == nullptr) {
      work.wait(lock);
      continue;
    }
    const bool query = queue == &queries;
    if (query) ++queries_running;
    Task task = std::move(queue->front());
    queue->pop_front();
    lock.unlock();
    try {
      if (task.answer.has_value()) {
        seal_and_finish(task.request, std::move(*task.answer));
      } else {
        decode_and_handle(task.request);
      }
    } catch (...) {  // out of memory
      finish(task.request, MHD_HTTP_INTERNAL_SERVER_ERROR, "");
    }
    task = {};
    lock.lock();
    if (query) {
      --queries_running;
      work.notify_one();  // whom the last query's turn kept waiting
    }
  }
  --workers_running;
  idle.notify_all();
}

void Core::answer_due(Clock::time_point now) {
  while (!timers.empty() && timers.begin()->first <= now) {
    const Timer due = timers.begin()->second;
    timers.erase(timers.begin());
    const std::lock_guard request_lock(due.request->mutex);
    if (due.request->answered || due.request->timer_generation != due.generation) continue;
    due.request->answered = true;
    enqueue({due.request, std::move(*due.request->timeout_text)});
    due.request->timeout_text.reset();
  }
}

std::vector<RequestPtr> Core::forgotten(Clock::time_point now) {
  std::vector<RequestPtr> found;
  for (const RequestPtr& request : suspended) {
    const std::lock_guard request_lock(request->mutex);
    if (request->answered || now - request->received < options.max_deferred + milliseconds(500)) {
      continue;
    }
    request->answered = true;
    timed_out.fetch_add(1);
    found.push_back(request);
  }
  return found;
}

// The event loop sees the shutdown as the peer's and closes; the fd stays ours until the entry
// leaves `connections`, which takes this mutex. Where room gets scarce, patience does.
void Core::cut_slow(Clock::time_point now) const {
  const bool scarce = connections.size() > static_cast<size_t>(options.max_connections) * 3 / 4;
  const milliseconds patience = scarce ? options.io_timeout / 8 : options.io_timeout;
  for (const Connection* connection : connections) {
    if (!connection->waiting && now - connection->since > patience) {
      ::shutdown(connection->fd, SHUT_RDWR);
    }
  }
}

bool Core::drain_connections(int how, milliseconds limit) {
  std::unique_lock lock(mutex);
  for (const Connection* connection : connections) ::shutdown(connection->fd, how);
  return idle.wait_for(lock, limit, [&] { return connections.empty(); });
}

void Core::run_timer() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    const Clock::time_point now = Clock::now();
    answer_due(now);
    cut_slow(now);
    if (const std::vector<RequestPtr> late = forgotten(now); !late.empty()) {
      lock.unlock();
      for (const RequestPtr& request : late) {
        accept_answer(request, error_response("the controller did not answer in time"));
      }
      lock.lock();
      continue;
    }
    Clock::time_point next = now + std::min(kTick, options.io_timeout / 2);
    if (!timers.empty()) next = std::min(next, timers.begin()->first);
    timer.wait_until(lock, next);
  }
}

}  // namespace flextrain::protocol::endpoint
