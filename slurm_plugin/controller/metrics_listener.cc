// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/metrics_listener.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "slurm_plugin/controller/metrics.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr std::chrono::seconds kOpenAgain{10};
constexpr std::chrono::seconds kTextEvery{1};
// Scrapers are few; everybody else on the host must not use slurmctld's files up.
constexpr int kMaxConnections = 64, kMaxConnectionsPerAddress = 32;
constexpr std::chrono::milliseconds kIoTimeout{10'000}, kStopTimeout{500};

}  // namespace

struct MetricsListener::Text {
  std::mutex mutex;
  std::shared_ptr<const std::string> now;

  std::shared_ptr<const std::string> get() {
    const std::lock_guard lock(mutex);
    return now;
  }
  void set(std::string text) {
    auto next = std::make_shared<const std::string>(std::move(text));
    const std::lock_guard lock(mutex);
    now.swap(next);  // the old one goes after the lock
  }
};

MetricsListener::MetricsListener(std::string address, int port)
    : address_(std::move(address)), port_(port), text_(std::make_shared<Text>()) {}

void MetricsListener::open() {
  protocol::EndpointOptions options;
  options.bind_address = address_;
  options.port = std::max(0, port_);
  options.max_connections = kMaxConnections;
  options.max_connections_per_address = kMaxConnectionsPerAddress;
  options.io_timeout = kIoTimeout;
  options.stop_timeout = kStopTimeout;
  options.page = {"/metrics", kMetricsContentType, [text = text_] { return text->get(); }};
  auto started = protocol::EndpointServer::start(options, nullptr, nullptr);
  if (!started.ok()) {
    if (started.status().message() != logged_) {
      log_warning("no metrics for now: {}", started.status().message());
    }
    logged_ = started.status().message();
    return;
  }
  server_ = std::move(started).value();
  log_info("metrics on port {}", server_->port());
}

void MetricsListener::turn(Clock::time_point now, const std::function<std::string()>& render) {
  if (port_ == 0) return;
  if (now >= next_text_) {
    next_text_ = now + kTextEvery;
    try {
      text_->set(render());
    } catch (const std::exception& error) {  // the thread has more important things to do
      log_warning("no new metrics for now: {}", error.what());
    }
  }
  if (server_ == nullptr && now >= next_open_) {
    next_open_ = now + kOpenAgain;
    open();
  }
}

void MetricsListener::stop() {
  if (server_ != nullptr) server_->stop();
}

int MetricsListener::port() const { return server_ == nullptr ? 0 : server_->port(); }

}  // namespace flextrain::slurm_plugin
