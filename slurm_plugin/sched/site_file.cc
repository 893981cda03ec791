// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/sched/site_file.h"

#include "base/file.h"
#include "base/text.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr size_t kLargestFile = 1 << 20;
constexpr int kMostLines = 500;

// The lines of a broken file that can be understood, switched off: what an earlier run left in the
// database it names can be given back.
ControllerConfig salvage(const std::string& text, const std::string& path) {
  ControllerConfig config;
  std::string good;
  int tries = 0;
  for (const std::string& line : split(text, '\n')) {
    if (line.find('=') == std::string::npos || trim(line).starts_with('#')) continue;
    if (++tries > kMostLines) break;  // no file of ours is that long
    const std::string longer = good + line + "\n";
    Result<ControllerConfig> parsed = parse_controller_config(longer, path);
    if (!parsed.ok()) continue;
    good = longer;
    config = std::move(*parsed);
  }
  config.enabled = false;
  return config;
}

}  // namespace

std::string site_file_path(std::string_view slurm_conf_path) {
  const size_t slash = slurm_conf_path.rfind('/');
  const std::string_view folder =
      slash == std::string_view::npos ? "/etc/slurm" : slurm_conf_path.substr(0, slash);
  return std::string(folder) + "/flextrain.conf";
}

std::string find_inner_scheduler(std::string_view text) {
  std::string found = ControllerConfig().inner_scheduler;
  for (const std::string& raw : split(text, '\n')) {
    const std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    if (to_lower(trim(line.substr(0, equals))) != "innerscheduler") continue;
    if (const std::string_view value = trim(line.substr(equals + 1)); !value.empty()) {
      found = value;
    }
  }
  return found;
}

SiteFile read_site_file(const std::string& path) noexcept {
  SiteFile file;
  try {
    file.inner_scheduler = ControllerConfig().inner_scheduler;
    const Result<std::string> text = read_file(path, kLargestFile);
    if (!text.ok() && text.status().code() != StatusCode::kNotFound) {
      file.error = text.status().message();
    } else if (text.ok()) {
      file.inner_scheduler = find_inner_scheduler(*text);
      Result<ControllerConfig> config = parse_controller_config(*text, path);
      if (config.ok()) {
        file.settings.config = std::move(*config);
        file.inner_scheduler = file.settings.config.inner_scheduler;
      } else {
        file.error = config.status().message();
        file.settings.config = salvage(*text, path);
      }
    }
    file.settings.on = file.error.empty() && file.settings.config.enabled;
    file.settings.config.enabled = file.settings.on;
    if (!file.error.empty()) {
      file.settings.off_reason = file.error;
    } else if (!file.settings.on) {
      file.settings.off_reason = "Enabled=no in flextrain.conf";
    }
  } catch (...) {  // out of memory
    file.settings.on = false;
  }
  return file;
}

}  // namespace flextrain::slurm_plugin
