// SPDX-License-Identifier: MIT
// The agents' and sflex's side of the wire. One HTTP request per call, a fresh connection each.
//
// A stranger who listens on a dead controller's port gains nothing: requests can only be decoded by
// the controller's uid, and a response counts only when its credential was made by root or that
// uid, for us, and it repeats the request's nonce.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "protocol/auth.h"
#include "protocol/discovery.h"
#include "protocol/messages.h"

namespace flextrain::protocol {

struct ClientOptions {
  std::vector<HostPort> hosts;                       // tried in order
  uid_t controller_uid = 0;                          // SlurmUser; root's responses are accepted too
  std::chrono::milliseconds connect_timeout{3'000};  // per host
  std::chrono::milliseconds timeout{15'000};         // per host, for calls that name none
};

// Thread-compatible; cancel() may be called from any thread.
class Client {
 public:
  virtual ~Client() = default;

  // Sends `request` (version and nonce are set here) and returns the controller's response.
  // kUnavailable: no host answered (the message lists each host's reason); kPermissionDenied: what
  // answered is not the controller; kFailedPrecondition: the controller said no, in its words;
  // kDeadlineExceeded; kAborted after cancel().
  virtual Result<Envelope> call(Envelope request) = 0;
  // The same with another time limit per host (long polls: the poll's time plus some seconds).
  virtual Result<Envelope> call(Envelope request, std::chrono::milliseconds timeout) = 0;
  // Ends the running call at once and fails all later ones with kAborted.
  virtual void cancel() = 0;
};

// kInternal when libcurl cannot start; kInvalidArgument without hosts.
Result<std::unique_ptr<Client>> make_client(ClientOptions options,
                                            std::shared_ptr<Authenticator> auth);

// An Envelope with a typed body, and a typed body out of a response.
template <typename Message>
Envelope make_request(std::string_view type, const JobIdentity& job, int64_t epoch,
                      const Message& message) {
  Envelope envelope;
  envelope.type = std::string(type);
  envelope.job = job;
  envelope.controller_epoch = epoch;
  envelope.body = to_json(message);
  return envelope;
}

}  // namespace flextrain::protocol
