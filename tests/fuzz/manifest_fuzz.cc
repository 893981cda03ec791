// SPDX-License-Identifier: MIT
// Checkpoint manifests: as they stand, and with a checksum made right, so that what comes behind
// the checksum is reached too.
#include "base/bounded_json.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/hash.h"
#include "trainer/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  using namespace flextrain::trainer;
  const std::string_view text = fuzz::text_of(data, size);
  const auto check = [](std::string_view manifest_text) {
    const auto manifest = manifest_from_text(manifest_text);
    if (manifest.ok()) FUZZ_REQUIRE(manifest_from_text(manifest_to_text(*manifest)).ok());
  };
  check(text);
  Result<Json> json = parse_bounded_json(text, "manifest");
  if (!json.ok() || !json->is_object()) return 0;
  json->erase("manifest_xxh3");
  const auto replace = Json::error_handler_t::replace;
  (*json)["manifest_xxh3"] = xxh3_hex(json->dump(-1, ' ', false, replace));
  check(json->dump(1, ' ', false, replace) + "\n");
  return 0;
}
