// SPDX-License-Identifier: MIT
#include "trainer/run/known_profiles.h"

#include "base/file.h"
#include "trainer/run/measured_steps.h"

namespace flextrain::trainer {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20, kMostProfiles = 32;

std::string path_of(const TrainConfig& config) {
  return config.output_dir + "/known_profiles.json";
}

// By plan; empty when the file is not of this job.
Json read_profiles(const TrainConfig& config) {
  const Json file = read_job_file(config, path_of(config), kMostBytes);
  if (file.is_null()) return Json::object();
  Json profiles = file.value("profiles", Json::object());
  return profiles.is_object() ? profiles : Json::object();
}

}  // namespace

std::optional<planner::StepProfile> read_known_profile(const TrainConfig& config,
                                                       const std::string& plan_id) {
  const Json profiles = read_profiles(config);
  const auto found = profiles.find(plan_id);
  if (found == profiles.end()) return std::nullopt;
  Result<planner::StepProfile> profile = planner::profile_from_json(*found);
  if (!profile.ok() || static_cast<int>(profile->layers.size()) != num_layers(config.model))
    return std::nullopt;
  return *std::move(profile);
}

Status write_known_profile(const TrainConfig& config, const std::string& plan_id,
                           const planner::StepProfile& profile) {
  Json profiles = read_profiles(config);
  if (profiles.size() >= kMostProfiles && !profiles.contains(plan_id)) profiles = Json::object();
  profiles[plan_id] = planner::profile_to_json(profile);
  return write_file_atomically(
      path_of(config),
      Json{{"job", measured_job(config)}, {"profiles", std::move(profiles)}}.dump() + "\n");
}

}  // namespace flextrain::trainer
