// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/sched/plugin_core.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "slurm_plugin/cluster/slurm_cluster.h"
#include "slurm_plugin/sched/slurm_internal.h"

namespace flextrain::slurm_plugin {
namespace {

// slurmctld waits in fini: an RPC begun just before SIGTERM retries for up to 18 s, so a longer
// wait would only delay the exit (measured with Slurm 22.05).
constexpr std::chrono::milliseconds kStopWait{2000};

void log_to_slurm(LogLevel level, std::string_view line) {
  const int length = static_cast<int>(line.size());
  switch (level) {
    case LogLevel::kError:
      slurm_error("flextrain: %.*s", length, line.data());
      break;
    case LogLevel::kWarning:
      slurm_info("flextrain: warning: %.*s", length, line.data());
      break;
    case LogLevel::kInfo:
      slurm_info("flextrain: %.*s", length, line.data());
      break;
    case LogLevel::kDebug:
      slurm_debug("flextrain: %.*s", length, line.data());
      break;
  }
}

}  // namespace

PluginCore& PluginCore::instance() {
  static PluginCore* const core = [] {
    set_log_sink(log_to_slurm);
    return new PluginCore();
  }();
  return *core;
}

void PluginCore::read_settings(const std::string& slurm_conf_path) {
  SiteFile file = read_site_file(site_file_path(slurm_conf_path));
  std::string complaint;  // logged once the lock is released: the hooks take it
  {
    const std::lock_guard lock(settings_mutex_);
    if (file.error.empty()) {
      last_complaint_.clear();
      have_good_file_ = true;
      set_log_level(file.settings.config.log_level);
      file_ = std::move(file);
    } else {
      if (file.error != last_complaint_) {
        complaint = fmt::format(
            "{}; {}", file.error,
            have_good_file_
                ? "the previous settings stay in force"
                : "elasticity is off until this is mended and 'scontrol reconfigure' is "
                  "run; jobs run at the size they ask for");
        last_complaint_ = file.error;
      }
      if (!have_good_file_) file_ = std::move(file);
    }
  }
  if (!complaint.empty()) log_error("{}", complaint);
}

SiteSettings PluginCore::settings() const {
  const std::lock_guard lock(settings_mutex_);
  return file_.settings;
}

bool PluginCore::start_scheduling(Host host) {
  std::string inner;
  {
    const std::lock_guard lock(settings_mutex_);
    inner = file_.inner_scheduler;
  }
  // Switched off where it has run before: somebody must give back what that run left.
  const SiteSettings site = settings();
  const bool needed = site.on || ::access(site.config.database_path.c_str(), F_OK) == 0;
  if (needed && !site.on) log_info("what the last run has grown, if anything, is given back");
  const std::lock_guard lock(mutex_);
  if (!inner_.load(inner)) return false;
  if (active_) return true;
  active_ = true;
  host_ = std::move(host);
  stopping_ = std::make_shared<std::atomic<bool>>(false);
  if (inner == "sched/backfill") het_cure_.start(stopping_);
  if (needed) start_controller_locked();
  return true;
}

void PluginCore::start_controller_locked() {
  ControllerDependencies dependencies;
  dependencies.slurm_uid = host_.slurm_uid;
  dependencies.config_file = site_file_path(host_.slurm_conf_path);
  dependencies.slurm_version = fmt::format("{}.{:02}.{}", SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
                                           SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER),
                                           SLURM_VERSION_MICRO(SLURM_VERSION_NUMBER));
  dependencies.make_cluster = [name = host_.cluster_name, stopping = stopping_, tokens = tokens_] {
    SlurmClusterOptions options;
    options.cluster_name = name;
    options.stopping = [stopping] { return stopping->load(); };
    options.on_observe = [tokens](const ClusterView& view) { tokens->update(view); };
    return make_slurm_cluster(std::move(options));
  };
  Result<std::unique_ptr<Controller>> controller =
      Controller::create(settings().config, std::move(dependencies));
  if (!controller.ok()) {
    log_error("{}; elasticity is off", controller.status().message());
    return;
  }
  controller_ = std::move(*controller);
  if (const Status status = controller_->start(); !status.ok()) {
    log_error("{}; elasticity is off", status.message());
    controller_.reset();
  }
  for_hooks_.store(controller_);
}

int PluginCore::reconfigure() {
  const std::lock_guard lock(mutex_);
  if (!active_) return SLURM_SUCCESS;
  const int rc = inner_.reconfigure();
  het_cure_.note_reconfigure();
  const SiteSettings site = settings();
  if (controller_ && !site.on) log_info("elasticity is off: {}", site.off_reason);
  if (!controller_) {
    if (site.on) start_controller_locked();
  } else if (const Status status = controller_->reconfigure(site.config); !status.ok()) {
    log_error("{}; the previous settings stay in force", status.message());
  }
  return rc;
}

void PluginCore::stop_scheduling() {
  std::shared_ptr<Controller> controller;
  {
    const std::lock_guard lock(mutex_);
    active_ = false;
    if (stopping_) *stopping_ = true;  // first of all: no further RPC begins
    controller = std::move(controller_);
    controller_.reset();
    for_hooks_.store(nullptr);
  }
  inner_.unload();
  if (controller && !controller->stop(kStopWait)) {
    log_warning("the controller is inside a call to slurmctld and is left behind");
    new std::shared_ptr<Controller>(std::move(controller));  // still in use: leaked on purpose
  }
}

void PluginCore::wake() noexcept {
  try {
    if (const std::shared_ptr<Controller> controller = for_hooks_.load()) controller->wake();
  } catch (...) {
  }
}

}  // namespace flextrain::slurm_plugin
