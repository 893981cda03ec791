// SPDX-License-Identifier: MIT
// job.toml, and --set: the text's first line is an override where it begins with "--set ".
#include "tests/fuzz/fuzz_target.h"
#include "trainer/config/config_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  using namespace flextrain::trainer;
  std::string_view text = fuzz::text_of(data, size);
  std::vector<std::string> overrides;
  if (text.starts_with("--set ")) overrides.emplace_back(fuzz::take(text).substr(6));
  const auto config = parse_train_config(text, "job.toml", overrides);
  if (!config.ok()) return 0;
  const Json json = config_to_json(*config);
  const auto again = config_from_json(json);
  FUZZ_REQUIRE(again.ok() && config_to_json(*again) == json);
  return 0;
}
