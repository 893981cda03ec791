// SPDX-License-Identifier: GPL-2.0-or-later
// The port that serves /metrics. Owns the listener and the text that is served; driven by one
// thread (the monitor), which also renders: a scrape only hands out the newest text, so that
// scrapers cost slurmctld nothing but the transfer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "protocol/endpoint_server.h"

namespace flextrain::slurm_plugin {

class MetricsListener {
 public:
  using Clock = std::chrono::steady_clock;

  // `port` 0: off, nothing is ever opened or rendered; below 0: any free one (tests).
  MetricsListener(std::string address, int port);

  // Now and then: opens the port where it is not open (again only after a while; a line in the log
  // for every new reason), and takes a new text once a second.
  void turn(Clock::time_point now, const std::function<std::string()>& render);
  void stop();
  int port() const;  // 0 while it is not open

 private:
  struct Text;

  void open();

  const std::string address_;
  const int port_;
  const std::shared_ptr<Text> text_;  // the server's event loop reads it
  std::unique_ptr<protocol::EndpointServer> server_;
  Clock::time_point next_open_, next_text_;
  std::string logged_;
};

}  // namespace flextrain::slurm_plugin
