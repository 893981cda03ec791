// SPDX-License-Identifier: MIT
#include "protocol/client.h"

#include <curl/curl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <mutex>

#include "base/text.h"
#include "protocol/framing.h"

namespace flextrain::protocol {
namespace {

using std::chrono::milliseconds;

bool start_curl() {
  static const bool ok = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;  // thread-safe static
  return ok;
}

struct EasyDeleter {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct MultiDeleter {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

size_t on_bytes(char* bytes, size_t size, size_t count, void* target) {
  auto& body = *static_cast<std::string*>(target);
  if (body.size() + size * count > kMaxBodyBytes) return 0;  // curl then fails the transfer
  try {
    body.append(bytes, size * count);
  } catch (...) {
    return 0;
  }
  return size * count;
}

constexpr int64_t kTellingSkew = 30;  // seconds; below, the clocks are not what munge minds

// Why a credential was refused, as far as the answer's Date tells. Nobody has signed that: it
// serves the message alone.
std::string likely_reason(CURL* easy) {
  curl_header* date = nullptr;
  if (curl_easy_header(easy, "Date", 0, CURLH_HEADER, -1, &date) == CURLHE_OK) {
    const time_t theirs = curl_getdate(date->value, nullptr);
    const int64_t skew = static_cast<int64_t>(theirs) - static_cast<int64_t>(std::time(nullptr));
    if (theirs > 0 && std::abs(skew) >= kTellingSkew) {
      return fmt::format("its clock is {} s {} of ours; set the clocks right", std::abs(skew),
                         skew > 0 ? "ahead" : "behind");
    }
  }
  return "it is not made with the munge key there, or came a second time; the clocks agree";
}

class CurlClient : public Client {
 public:
  CurlClient(ClientOptions options, std::shared_ptr<Authenticator> auth)
      : options_(std::move(options)), auth_(std::move(auth)), multi_(curl_multi_init()) {}

  bool usable() const { return multi_ != nullptr; }

  Result<Envelope> call(Envelope request) override {
    return call(std::move(request), options_.timeout);
  }
  Result<Envelope> call(Envelope request, milliseconds timeout) override;
  void cancel() override {
    cancelled_.store(true);
    curl_multi_wakeup(multi_.get());
  }

 private:
  Result<Envelope> call_host(const HostPort& host, Envelope& request, milliseconds timeout);
  Result<std::string> exchange(const HostPort& host, const std::string& type,
                               const std::string& body, milliseconds timeout);
  Status check(const Opened& opened, const Envelope& request) const;

  const ClientOptions options_;
  const std::shared_ptr<Authenticator> auth_;
  const std::unique_ptr<CURLM, MultiDeleter> multi_;
  std::atomic<bool> cancelled_{false};
};

// One HTTP exchange: the response's body.
Result<std::string> CurlClient::exchange(const HostPort& host, const std::string& type,
                                         const std::string& body, milliseconds timeout) {
  const std::unique_ptr<CURL, EasyDeleter> easy(curl_easy_init());
  if (easy == nullptr) return internal_error("libcurl cannot make a handle");
  const bool v6 = host.host.find(':') != std::string::npos;
  const std::string url = fmt::format("http://{}{}{}:{}/v1/{}", v6 ? "[" : "", host.host,
                                      v6 ? "]" : "", host.port, type);
  std::string response;
  char error_text[CURL_ERROR_SIZE] = "";
  CURL* const e = easy.get();
  // "Expect:": curl would wait a second for a 100 Continue before a large body.
  const std::unique_ptr<curl_slist, ListDeleter> headers(
      curl_slist_append(curl_slist_append(nullptr, "Expect:"), "Content-Type: text/plain"));
  curl_easy_setopt(e, CURLOPT_URL, url.c_str());
  curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(e, CURLOPT_POST, 1L);
  curl_easy_setopt(e, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, &on_bytes);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, &response);
  curl_easy_setopt(e, CURLOPT_ERRORBUFFER, error_text);
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_PROXY, "");  // the controller is never behind http_proxy
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http");
  curl_easy_setopt(e, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);  // a controller host that lost power
  // A credential is accepted once: a stale kept-alive connection would make curl send it again.
  curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
  curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L);
  curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options_.connect_timeout.count()));
  curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));

  if (curl_multi_add_handle(multi_.get(), e) != CURLM_OK) {
    return internal_error("libcurl cannot start a request");
  }
  CURLcode code = CURLE_OK;
  bool done = false;
  while (!done && !cancelled_.load()) {
    int running = 0;
    if (curl_multi_perform(multi_.get(), &running) != CURLM_OK) {
      code = CURLE_SEND_ERROR;
      break;
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg == CURLMSG_DONE && message->easy_handle == e) {
        code = message->data.result;
        done = true;
      }
    }
    if (!done && !cancelled_.load()) curl_multi_poll(multi_.get(), nullptr, 0, 1000, nullptr);
  }
  curl_multi_remove_handle(multi_.get(), e);
  if (cancelled_.load()) return aborted("the request was cancelled");
  const std::string where = fmt::format("{}:{}", host.host, host.port);
  if (code == CURLE_OPERATION_TIMEDOUT)
    return deadline_exceeded("{} did not answer in time", where);
  if (code == CURLE_WRITE_ERROR) return permission_denied("{} sent too much", where);
  if (code != CURLE_OK) {
    return unavailable("{}: {}", where,
                       *error_text != '\0' ? error_text : curl_easy_strerror(code));
  }
  long http = 0;
  curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &http);
  if (http == 401) {
    return permission_denied("{} refused our credential: {}", where, likely_reason(e));
  }
  if (http == 503) return unavailable("{} is starting, stopping or without munge", where);
  if (http != 200) return unavailable("{} answered with HTTP status {}", where, http);
  return response;
}

Status CurlClient::check(const Opened& opened, const Envelope& request) const {
  if (opened.uid != 0 && opened.uid != options_.controller_uid) {
    return permission_denied("the answer was made by uid {}, which is not the controller's ({})",
                             opened.uid, options_.controller_uid);
  }
  if (opened.envelope.nonce != request.nonce || opened.envelope.type != request.type) {
    return permission_denied("the answer belongs to another request");
  }
  if (opened.envelope.version < 1 || opened.envelope.version > kProtocolVersion) {
    return failed_precondition("the controller speaks protocol version {}; this program only {}",
                               opened.envelope.version, kProtocolVersion);
  }
  return {};
}

Result<Envelope> CurlClient::call_host(const HostPort& host, Envelope& request,
                                       milliseconds timeout) {
  request.nonce = random_hex_id();
  ASSIGN_OR_RETURN(const std::string body, seal(request, *auth_, options_.controller_uid));
  ASSIGN_OR_RETURN(const std::string response, exchange(host, request.type, body, timeout));
  Result<Opened> opened = open_sealed(response, *auth_);
  Status status = opened.ok() ? check(*opened, request) : opened.status();
  if (!status.ok()) return status.with_context(fmt::format("{}:{}", host.host, host.port));
  return std::move(opened->envelope);
}

Result<Envelope> CurlClient::call(Envelope request, milliseconds timeout) {
  request.version = kProtocolVersion;
  Status worst;
  std::string reasons;
  for (const HostPort& host : options_.hosts) {
    if (cancelled_.load()) return aborted("the request was cancelled");
    Result<Envelope> response = call_host(host, request, timeout);
    if (response.ok()) {
      if (!response->error.empty()) {
        return failed_precondition("the controller refused: {}", response->error);
      }
      return response;
    }
    const StatusCode code = response.status().code();
    if (code == StatusCode::kAborted || code == StatusCode::kResourceExhausted) {
      return response.status();
    }
    reasons += (reasons.empty() ? "" : "; ") + response.status().message();
    // What is most worth knowing: an impostor, then the last failure.
    if (worst.ok() || worst.code() != StatusCode::kPermissionDenied) {
      worst = Status(code == StatusCode::kDataLoss || code == StatusCode::kInvalidArgument
                         ? StatusCode::kPermissionDenied
                         : code,
                     "");
    }
  }
  return Status(worst.code(), "no answer from the controller: " + reasons);
}

}  // namespace

Result<std::unique_ptr<Client>> make_client(ClientOptions options,
                                            std::shared_ptr<Authenticator> auth) {
  if (options.hosts.empty()) return invalid_argument("no controller host is given");
  if (!start_curl()) return internal_error("libcurl cannot start");
  auto client = std::make_unique<CurlClient>(std::move(options), std::move(auth));
  if (!client->usable()) return internal_error("libcurl cannot make a handle");
  return std::unique_ptr<Client>(std::move(client));
}

}  // namespace flextrain::protocol
