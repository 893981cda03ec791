// SPDX-License-Identifier: MIT
// The controller's endpoint: a small HTTP server for POST /v1/<type> that lives inside slurmctld.
//
// Threads: one event loop (libmicrohttpd, epoll), `workers` threads for credentials and the
// handler, one timer. A request that waits for its answer (long poll) costs a suspended connection
// and no thread. All own threads block every signal, so that slurmctld's stay where they were.
//
// Bounds: body size, bytes kept over all connections (byte_budget.h), connections, connections per
// address, time to send a request and to take the response, time of a deferred answer. Queries of
// people never hold up the messages of agents.
//
// A server of its own may serve a TextPage (metrics) instead, from the event loop alone.
//
// What callers may rely on: `Caller` is proven by the credential. Whether this uid may speak for
// the job in the Envelope is the handler's decision.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "protocol/auth.h"
#include "protocol/framing.h"
#include "protocol/messages.h"

namespace flextrain::protocol {

struct Caller {
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
  std::string address;  // numeric, of the peer; for logs
  size_t bytes = 0;     // of the request's JSON: what keeping it costs
};

// One request's answer, now or later, from any thread. Thread-safe; outlives the server safely
// (then nothing is sent). The first send() wins, later ones return false. When the last reference
// goes without a send(), the caller gets an error.
class Reply {
 public:
  virtual ~Reply() = default;
  // Sends. `type` and `nonce` are filled in; the credential is made by a worker, so this never
  // blocks. False when it was answered before (timed out, or the server is stopping).
  virtual bool send(Envelope response) = 0;
  // If nothing was sent within `timeout`, sends `response`. Capped by
  // EndpointOptions::max_deferred; the last call counts.
  virtual void send_after(std::chrono::milliseconds timeout, Envelope response) = 0;
  // True once answered.
  virtual bool answered() const = 0;
};
using ReplyPtr = std::shared_ptr<Reply>;

// Called by worker threads, several at once. Must not block for long: keep `reply` and return to
// answer later. Must not throw (if it does, the caller gets an error and it is logged).
using Handler = std::function<void(const Envelope& request, const Caller& caller, ReplyPtr reply)>;

// A response that says no: `error` in words for the user.
Envelope error_response(std::string error);

// A text that anybody who can connect may GET, without credentials.
struct TextPage {
  std::string path, content_type;
  // Called by the event loop: must not block. Null: not available now.
  std::function<std::shared_ptr<const std::string>()> text;
};

struct EndpointOptions {
  std::string bind_address;  // "" = all, IPv4
  int port = kDefaultPort;   // 0 = any free one, see EndpointServer::port()
  int workers = 2;
  int max_connections = 4096;
  int max_connections_per_address = 256;  // a user on a login node must not lock out the others
  size_t max_body_bytes = kMaxBodyBytes;
  // Bodies and responses over all connections, beyond the small ones (ByteBudget::kFreeBytes).
  size_t max_buffered_bytes = size_t{128} << 20;
  // To send a request; to take the response. An eighth of it while more than three quarters of
  // max_connections are taken.
  std::chrono::milliseconds io_timeout{15'000};
  std::chrono::milliseconds max_deferred{120'000};
  std::chrono::milliseconds stop_timeout{1'500};
  // Set: the server serves GET of this page and nothing else; no handler, no workers.
  std::optional<TextPage> page;
};

class EndpointServer {
 public:
  // kUnavailable when the port is taken or threads cannot be started.
  static Result<std::unique_ptr<EndpointServer>> start(const EndpointOptions& options,
                                                       std::shared_ptr<Authenticator> auth,
                                                       Handler handler);
  virtual ~EndpointServer() = default;  // stops
  virtual int port() const = 0;
  // Answers everything that waits with "stopping", closes the port, joins the threads. Idempotent,
  // from any thread but a handler's. Returns within about twice EndpointOptions::stop_timeout
  // plus the running handlers' own time.
  virtual void stop() = 0;
  struct Statistics {
    int64_t requests = 0, refused = 0, timed_out = 0;
    int connections = 0, waiting = 0;  // now
    size_t buffered_bytes = 0;         // now, of max_buffered_bytes
  };
  virtual Statistics statistics() const = 0;
};

}  // namespace flextrain::protocol
