// SPDX-License-Identifier: MIT
// Auth by munge credentials, for production; fake_auth.cc serves tests.
#include <munge.h>

#include <cstdlib>
#include <ctime>

#include "protocol/auth.h"

namespace flextrain::protocol {
namespace {

struct ContextDeleter {
  void operator()(munge_ctx_t context) const { munge_ctx_destroy(context); }
};
using Context = std::unique_ptr<struct munge_ctx, ContextDeleter>;

// How far the maker's clock is from ours, as far as a refused credential tells.
std::string age_text(munge_ctx_t context) {
  time_t made = 0, now = 0;
  int ttl = 0;
  if (context == nullptr ||
      munge_ctx_get(context, MUNGE_OPT_ENCODE_TIME, &made) != EMUNGE_SUCCESS ||
      munge_ctx_get(context, MUNGE_OPT_DECODE_TIME, &now) != EMUNGE_SUCCESS ||
      munge_ctx_get(context, MUNGE_OPT_TTL, &ttl) != EMUNGE_SUCCESS || made == 0 || now == 0) {
    return "; do the hosts' clocks agree?";
  }
  return made > now ? fmt::format(
                          "; it was made {} s in the future of this host's clock: set the "
                          "clocks right",
                          made - now)
                    : fmt::format(
                          "; it was made {} s ago by this host's clock and is good for {} "
                          "s: it travelled too long, or the clocks are apart",
                          now - made, ttl);
}

// `action` is "encode" or "decode"; what munge cannot make sense of in a decode is the sender's
// doing.
Status munge_status(std::string_view action, munge_ctx_t context, munge_err_t error) {
  const char* detail = context != nullptr ? munge_ctx_strerror(context) : nullptr;
  const std::string text =
      detail != nullptr && *detail != '\0' ? std::string(detail) : munge_strerror(error);
  switch (error) {
    case EMUNGE_SOCKET:
    case EMUNGE_TIMEOUT:
      return unavailable("munge cannot {} a credential: {}; is munged running?", action, text);
    case EMUNGE_BAD_LENGTH:
    case EMUNGE_NO_MEMORY:
      return resource_exhausted("munge cannot {} a credential: {}", action, text);
    case EMUNGE_SNAFU:
    case EMUNGE_BAD_ARG:
    case EMUNGE_OVERFLOW:
      if (action == "decode") return permission_denied("munge refuses a credential: {}", text);
      return internal_error("munge cannot {} a credential: {}", action, text);
    case EMUNGE_CRED_EXPIRED:
    case EMUNGE_CRED_REWOUND:
      return permission_denied("munge refuses a credential: {}{}", text, age_text(context));
    default:
      return permission_denied("munge refuses a credential: {}", text);
  }
}

class MungeAuthenticator : public Authenticator {
 public:
  explicit MungeAuthenticator(MungeOptions options) : options_(std::move(options)) {}

  Result<std::string> encode(std::string_view bytes, std::optional<uid_t> only_for) override {
    ASSIGN_OR_RETURN(const Context context, make_context());
    if (only_for.has_value()) {
      const munge_err_t error =
          munge_ctx_set(context.get(), MUNGE_OPT_UID_RESTRICTION, static_cast<int>(*only_for));
      if (error != EMUNGE_SUCCESS) return munge_status("encode", context.get(), error);
    }
    char* credential = nullptr;
    const munge_err_t error =
        munge_encode(&credential, context.get(), bytes.data(), static_cast<int>(bytes.size()));
    if (error != EMUNGE_SUCCESS) return munge_status("encode", context.get(), error);
    std::string text(credential);
    std::free(credential);
    return text;
  }

  Result<Decoded> decode(std::string_view credential) override {
    ASSIGN_OR_RETURN(const Context context, make_context());
    void* bytes = nullptr;
    int size = 0;
    Decoded decoded;
    const munge_err_t error = munge_decode(std::string(credential).c_str(), context.get(), &bytes,
                                           &size, &decoded.uid, &decoded.gid);
    // An expired or replayed credential also fills `bytes`; nothing of it is used.
    if (error == EMUNGE_SUCCESS && size > 0) {
      decoded.bytes.assign(static_cast<const char*>(bytes), static_cast<size_t>(size));
    }
    std::free(bytes);
    if (error != EMUNGE_SUCCESS) return munge_status("decode", context.get(), error);
    time_t made = 0, now = 0;
    if (munge_ctx_get(context.get(), MUNGE_OPT_ENCODE_TIME, &made) != EMUNGE_SUCCESS ||
        munge_ctx_get(context.get(), MUNGE_OPT_DECODE_TIME, &now) != EMUNGE_SUCCESS) {
      return internal_error("munge does not tell when a credential was made");
    }
    decoded.age = std::chrono::seconds(now - made);
    return decoded;
  }

  Result<Context> make_context() const {
    Context context(munge_ctx_create());
    if (context == nullptr) return unavailable("libmunge cannot make a context: out of memory");
    if (!options_.socket.empty()) {
      const munge_err_t error =
          munge_ctx_set(context.get(), MUNGE_OPT_SOCKET, options_.socket.c_str());
      if (error != EMUNGE_SUCCESS) return munge_status("use the socket for", context.get(), error);
    }
    const munge_err_t error = munge_ctx_set(context.get(), MUNGE_OPT_TTL, options_.ttl_seconds);
    if (error != EMUNGE_SUCCESS)
      return munge_status("set the time to live of", context.get(), error);
    return context;
  }

 private:
  const MungeOptions options_;
};

}  // namespace

Result<std::shared_ptr<Authenticator>> make_munge_authenticator(const MungeOptions& options) {
  auto auth = std::make_shared<MungeAuthenticator>(options);
  if (auto context = auth->make_context(); !context.ok()) return context.status();
  return std::shared_ptr<Authenticator>(std::move(auth));
}

}  // namespace flextrain::protocol
