// SPDX-License-Identifier: GPL-2.0-or-later
// flextrain.conf as slurmctld's plugins take it: never an error that keeps Slurm from running.
#pragma once

#include <string>
#include <string_view>

#include "slurm_plugin/submit/elastic_check.h"

namespace flextrain::slurm_plugin {

// "flextrain.conf" beside the given slurm.conf.
std::string site_file_path(std::string_view slurm_conf_path);

struct SiteFile {
  SiteSettings settings;
  std::string error;            // "" when the file is good, or absent (then the defaults hold)
  std::string inner_scheduler;  // readable also in an otherwise broken file
};
// Reads the file. Never throws.
SiteFile read_site_file(const std::string& path) noexcept;

// The value of InnerScheduler= in `text` whatever else is wrong with it; the default where absent.
std::string find_inner_scheduler(std::string_view text);

}  // namespace flextrain::slurm_plugin
