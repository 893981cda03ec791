// SPDX-License-Identifier: MIT
#include "protocol/endpoint_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "base/log.h"

namespace flextrain::protocol::endpoint {
namespace {

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

void delete_body(void* body) { delete static_cast<std::string*>(body); }

MHD_Result queue_response(MHD_Connection* connection, unsigned status, std::string body) {
  auto held = std::make_unique<std::string>(std::move(body));
  MHD_Response* response = MHD_create_response_from_buffer_with_free_callback_cls(
      held->size(), held->data(), &delete_body, held.get());
  if (response == nullptr) return MHD_NO;
  held.release();  // delete_body has it now
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain");
  const MHD_Result result = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return result;
}

void delete_text(void* text) { delete static_cast<std::shared_ptr<const std::string>*>(text); }

MHD_Result send_page(MHD_Connection* connection, const TextPage& page,
                     std::shared_ptr<const std::string> text) {
  auto held = std::make_unique<std::shared_ptr<const std::string>>(std::move(text));
  // The library's buffers are not const; it only reads them.
  MHD_Response* response = MHD_create_response_from_buffer_with_free_callback_cls(
      (*held)->size(), const_cast<char*>((*held)->data()), &delete_text, held.get());
  if (response == nullptr) return MHD_NO;
  held.release();  // delete_text has it now
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, page.content_type.c_str());
  const MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
  MHD_destroy_response(response);
  return result;
}

MHD_Result refuse(Core& core, MHD_Connection* connection, Request& request, unsigned status) {
  core.refused.fetch_add(1);
  request.answered_at_once = true;
  return queue_response(connection, status, "");
}

MHD_Result on_page_request(Core& core, MHD_Connection* connection, Request& request,
                           const char* url, const char* method) {
  const TextPage& page = *core.options.page;
  if (page.path != url) return refuse(core, connection, request, MHD_HTTP_NOT_FOUND);
  if (std::strcmp(method, MHD_HTTP_METHOD_GET) != 0) {
    return refuse(core, connection, request, MHD_HTTP_METHOD_NOT_ALLOWED);
  }
  std::shared_ptr<const std::string> text = page.text();
  if (text == nullptr) {
    return refuse(core, connection, request, MHD_HTTP_SERVICE_UNAVAILABLE);
  }
  request.answered_at_once = true;
  return send_page(connection, page, std::move(text));
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
  if (core.options.page) return on_page_request(core, connection, *request, url, method);
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

MHD_Result on_body(Core& core, Request& request, const char* bytes, size_t size) {
  // Closing is all that can be done in the middle of an upload.
  if (request.body.size() + size > core.options.max_body_bytes ||
      !core.budget.add(request.body_share, request.caller.address, size)) {
    core.refused.fetch_add(1);
    return MHD_NO;
  }
  request.body.append(bytes, size);
  return MHD_YES;
}

MHD_Result on_whole_body(Core& core, MHD_Connection* connection, const RequestPtr& request) {
  const std::lock_guard lock(core.mutex);
  if (core.stopping) return refuse(core, connection, *request, MHD_HTTP_SERVICE_UNAVAILABLE);
  request->dispatched = true;
  request->received = Clock::now();
  request->connection_entry->waiting = true;
  core.suspended.insert(request);
  MHD_suspend_connection(connection);
  core.enqueue({request, std::nullopt});
  return MHD_YES;
}

MHD_Result on_resumed(Core& core, MHD_Connection* connection, const RequestPtr& request) {
  {
    const std::lock_guard lock(core.mutex);
    request->connection_entry->waiting = false;
    request->connection_entry->since = Clock::now();
    core.suspended.erase(request);
    core.idle.notify_all();
  }
  const std::lock_guard lock(request->mutex);
  return queue_response(connection, request->http_status, std::move(request->http_body));
}

MHD_Result on_request(void* cls, MHD_Connection* connection, const char* url, const char* method,
                      const char*, const char* upload, size_t* upload_size, void** request_slot) {
  Core& core = *static_cast<Core*>(cls);
  try {
    if (*request_slot == nullptr) {
      return on_headers(core, connection, url, method, request_slot);
    }
    const RequestPtr& request = *static_cast<RequestPtr*>(*request_slot);
    if (request->answered_at_once) {
      *upload_size = 0;
      return MHD_YES;
    }
    if (*upload_size > 0) {
      const MHD_Result result = on_body(core, *request, upload, *upload_size);
      *upload_size = 0;
      return result;
    }
    return request->dispatched ? on_resumed(core, connection, request)
                               : on_whole_body(core, connection, request);
  } catch (...) {  // out of memory: close this connection
    return MHD_NO;
  }
}

void on_completed(void* cls, MHD_Connection*, void** request_slot, MHD_RequestTerminationCode) {
  auto* slot = static_cast<RequestPtr*>(*request_slot);
  if (slot == nullptr) return;
  *request_slot = nullptr;
  Core& core = *static_cast<Core*>(cls);
  (*slot)->body_share.release();
  (*slot)->response_share.release();
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
    if (core.stopping) ::shutdown(entry->fd, SHUT_RDWR);
  } else if (auto* entry = static_cast<Connection*>(*socket_context)) {
    core.connections.erase(entry);
    delete entry;
    *socket_context = nullptr;
    core.idle.notify_all();
  }
}

void on_library_log(void*, const char* format, va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  log_debug("endpoint: {}", line);
}

}  // namespace

Result<MHD_Daemon*> start_daemon(Core& core) {
  EndpointOptions& options = core.options;
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
  MHD_Daemon* daemon = MHD_start_daemon(
      MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG,
      static_cast<uint16_t>(options.port), nullptr, nullptr, &on_request, &core,
      MHD_OPTION_EXTERNAL_LOGGER, &on_library_log, nullptr, MHD_OPTION_SOCK_ADDR,
      reinterpret_cast<sockaddr*>(&address), MHD_OPTION_NOTIFY_COMPLETED, &on_completed, &core,
      MHD_OPTION_NOTIFY_CONNECTION, &on_connection, &core, MHD_OPTION_CONNECTION_LIMIT,
      static_cast<unsigned>(options.max_connections), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
      static_cast<unsigned>(options.max_connections_per_address),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, size_t{16} << 10, MHD_OPTION_END);
  if (daemon == nullptr) {
    return unavailable(
        "cannot open the endpoint on port {}: {}; is another program on it? "
        "{} in flextrain.conf chooses another one",
        options.port, std::strerror(errno), options.page ? "MetricsPort" : "EndpointPort");
  }
  return daemon;
}

void run_event_loop(Core& core, MHD_Daemon* daemon) {
  constexpr MHD_UNSIGNED_LONG_LONG kMostMs = 1000;
  const int epoll_fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  int listener = -1;
  bool open = true;
  while (core.looping) {
    if (open && !core.listening) {
      listener = MHD_quiesce_daemon(daemon);
      open = false;
    }
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    if (MHD_get_timeout(daemon, &wait_ms) == MHD_NO || wait_ms > kMostMs) wait_ms = kMostMs;
    pollfd fds[] = {{epoll_fd, POLLIN, 0}, {core.wake_fd, POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(wait_ms));
    uint64_t woken = 0;
    [[maybe_unused]] const ssize_t got = ::read(core.wake_fd, &woken, sizeof woken);
    if (MHD_run(daemon) == MHD_NO) {  // epoll failed: no busy loop, whatever it is
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
  if (listener >= 0) ::close(listener);  // ours since it was quiesced
}

int port_of(MHD_Daemon* daemon) {
  const MHD_DaemonInfo* info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
  return info != nullptr ? info->port : 0;
}

}  // namespace flextrain::protocol::endpoint
