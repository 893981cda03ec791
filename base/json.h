// SPDX-License-Identifier: MIT
// JSON without exceptions: nlohmann's parser and typed field access as Results. Header-only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace flextrain {

using Json = nlohmann::json;

// `what` names the text in messages ("manifest.json", "Plan").
inline Result<Json> parse_json(std::string_view text, std::string_view what) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return data_loss("{} is not valid JSON", what);
  return json;
}

// Runs `decode`, which may use nlohmann's throwing accessors, and turns what it throws into a
// kInvalidArgument. The one place where JSON exceptions are caught.
template <typename Decode>
auto decode_json(std::string_view what, Decode&& decode) -> Result<decltype(decode())> {
  try {
    return decode();
  } catch (const std::exception& error) {
    return invalid_argument("{}: {}", what, error.what());
  }
}

}  // namespace flextrain
