// SPDX-License-Identifier: MIT
// job.toml and --set key=value → TrainConfig. Strict: an unknown key or section, a wrong type and a
// value out of range are refused with file, line and the names that would have been valid.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

// Parses `text`, applies `overrides` ("section.key=value", later ones win; the value is TOML, or a
// bare word for strings), and checks the whole. `file_name` is for messages. kInvalidArgument
// "file:line: …" or "--set …: …".
Result<TrainConfig> parse_train_config(std::string_view text, std::string_view file_name,
                                       const std::vector<std::string>& overrides = {});

// The same for a file on disk.
Result<TrainConfig> read_train_config(const std::string& path,
                                      const std::vector<std::string>& overrides = {});

// A file that the user names, as read_file; one that is too large is kInvalidArgument here, since
// it cannot be what was meant.
Result<std::string> read_input_file(const std::string& path, size_t max_bytes);

// Any other file of this form into `fields`; the same errors.
Status parse_fields(std::string_view text, std::string_view file_name,
                    const std::vector<ConfigField>& fields);

// {"model": {"layers": 4, …}, …}: every key, for the checkpoint's manifest and for the broadcast to
// other ranks. config_from_json(config_to_json(c)) has c's bits. Keys missing in the JSON keep
// their default (a manifest of an older release); unknown ones are ignored there (a newer one).
Json config_to_json(const TrainConfig& config);
Result<TrainConfig> config_from_json(const Json& json);

// Keys of the model's shape and numerics whose values differ, as "model.hidden is 256 here but 128
// in the checkpoint"; empty when a run with `current` may continue from state made with `stored`.
std::vector<std::string> model_differences(const TrainConfig& current, const TrainConfig& stored);

}  // namespace flextrain::trainer
