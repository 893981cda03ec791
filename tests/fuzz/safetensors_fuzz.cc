// SPDX-License-Identifier: MIT
// A layer's safetensors file against its entry of the manifest. First line: the entry as JSON; the
// rest: the file. Size and checksums are made right, so that header and offsets are what is tried.
#include "base/bounded_json.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/hash.h"
#include "trainer/checkpoint/layer_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  using namespace flextrain::trainer;
  std::string_view file = fuzz::text_of(data, size);
  const Result<Json> json = parse_bounded_json(fuzz::take(file), "entry");
  if (!json.ok()) return 0;
  Result<LayerEntry> entry = layer_entry_from_json(*json);
  if (!entry.ok()) return 0;
  (void)decode_layer(file, *entry);
  entry->bytes = static_cast<int64_t>(file.size());
  entry->xxh3 = xxh3_hex(file);
  const auto layer = decode_layer(file, *entry);
  if (!layer.ok()) return 0;
  const auto encoded = encode_layer(*layer);
  if (encoded.ok()) FUZZ_REQUIRE(decode_layer(encoded->bytes, encoded->entry).ok());
  return 0;
}
