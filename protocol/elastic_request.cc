// SPDX-License-Identifier: MIT
#include "protocol/elastic_request.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/text.h"

namespace flextrain::protocol {
namespace {

constexpr std::string_view kTagOpen = "flextrain(";
constexpr double kLargestMax = 1e6;  // GPUs; above it a value is a slip of the pen

struct TagSpan {  // where a tag stands: [begin, end) with the parentheses, and what is in them
  size_t begin = 0, end = 0;
  std::string_view body;
  bool closed = false;
};

// The first tag at or after `from`. A tag starts at a word's start, so that "my-flextrain(" of a
// site's own script is not taken for one.
std::optional<TagSpan> find_tag(std::string_view text, size_t from) {
  for (size_t at = text.find(kTagOpen, from); at != std::string_view::npos;
       at = text.find(kTagOpen, at + 1)) {
    if (at > 0) {
      const auto before = static_cast<unsigned char>(text[at - 1]);
      if (std::isalnum(before) || before == '_' || before == '-') continue;
    }
    TagSpan span;
    span.begin = at;
    const size_t body = at + kTagOpen.size();
    const size_t close = text.find(')', body);
    span.closed = close != std::string_view::npos;
    span.end = span.closed ? close + 1 : text.size();
    span.body = text.substr(body, (span.closed ? close : text.size()) - body);
    return span;
  }
  return std::nullopt;
}

bool is_companion_body(std::string_view body) { return body.starts_with("companion-of="); }

std::string number_text(double value) {
  if (value == std::floor(value)) return std::to_string(static_cast<int64_t>(value));
  return format_double(value);
}

Result<ElasticRequest> parse_body(std::string_view body) {
  ElasticRequest request;
  bool have_mode = false, have_max = false;
  for (const std::string& field : split(body, ',')) {
    const size_t equals = field.find('=');
    const std::string key = field.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : field.substr(equals + 1);
    if (key == "mode" && !have_mode && !value.empty()) {
      ASSIGN_OR_RETURN(request.mode, parse_elastic_mode(value));
      have_mode = true;
    } else if (key == "max" && !have_max) {
      ASSIGN_OR_RETURN(request.max, parse_elastic_max(value));
      have_max = true;
    } else {
      return data_loss("unknown or repeated field '{}'", field);
    }
  }
  if (!have_mode || !have_max) return data_loss("mode= or max= is missing");
  return request;
}

}  // namespace

std::string_view elastic_mode_name(ElasticMode mode) {
  return mode == ElasticMode::kPp ? "pp" : "dp+pp";
}

Result<ElasticMode> parse_elastic_mode(std::string_view text) {
  if (text.empty() || text == "dp+pp") return ElasticMode::kDpPp;
  if (text == "pp") return ElasticMode::kPp;
  return invalid_argument("--elastic={}: unknown mode; use pp or dp+pp", text);
}

Result<ElasticMax> parse_elastic_max(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    return invalid_argument("--elastic-max={}: {}; give GPUs (16) or a factor (4x)", text, why);
  };
  if (text.empty()) return refuse("a value is missing");
  ElasticMax max;
  std::string_view number = text;
  max.is_factor = number.back() == 'x' || number.back() == 'X';
  if (max.is_factor) number.remove_suffix(1);
  // Digits and one point alone: no signs, exponents or hexadecimals.
  const bool plain = !number.empty() && std::all_of(number.begin(), number.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) || c == '.';
  });
  Result<double> value = plain ? parse_double(number) : Result<double>(invalid_argument("no"));
  if (!value.ok()) return refuse("not a number");
  max.value = *value;
  if (!max.is_factor && max.value != std::floor(max.value)) return refuse("not a whole number");
  if (max.value < 1) return refuse(max.is_factor ? "below the request" : "must be at least 1");
  if (max.value > kLargestMax) return refuse("too large");
  return max;
}

int max_gpus(const ElasticRequest& request, int base_gpus) {
  const double most =
      request.max.is_factor ? std::floor(request.max.value * base_gpus + 1e-9) : request.max.value;
  return std::max(base_gpus, static_cast<int>(std::min(most, kLargestMax)));
}

std::string elastic_token(const ElasticRequest& request) {
  return fmt::format("{}mode={},max={}{})", kTagOpen, elastic_mode_name(request.mode),
                     number_text(request.max.value), request.max.is_factor ? "x" : "");
}

std::string with_token(std::string_view admin_comment, const ElasticRequest& request) {
  // Every older tag goes, an unclosed one to its word's end; the rest stays as it was.
  std::string kept;
  size_t at = 0;
  while (const std::optional<TagSpan> tag = find_tag(admin_comment, at)) {
    kept += admin_comment.substr(at, tag->begin - at);
    at = tag->end;
    if (!tag->closed) at = std::min(admin_comment.find(' ', tag->begin), admin_comment.size());
    if ((kept.empty() || kept.back() == ' ') && at < admin_comment.size() &&
        admin_comment[at] == ' ') {
      ++at;  // the blank that set the tag apart
    }
  }
  kept += admin_comment.substr(at);
  if (!kept.empty() && kept.back() != ' ') kept += ' ';
  return kept + elastic_token(request);
}

Result<std::optional<ElasticRequest>> from_comment(std::string_view admin_comment) {
  for (size_t at = 0;;) {
    const std::optional<TagSpan> tag = find_tag(admin_comment, at);
    if (!tag) return std::optional<ElasticRequest>();
    if (!is_companion_body(tag->body)) {
      const std::string_view text = admin_comment.substr(tag->begin, tag->end - tag->begin);
      if (!tag->closed) return data_loss("admin_comment: '{}' is not closed", text);
      Result<ElasticRequest> request = parse_body(tag->body);
      if (!request.ok()) {
        return data_loss("admin_comment: '{}': {}", text, request.status().message());
      }
      return std::optional<ElasticRequest>(*request);
    }
    at = tag->end;
  }
}

std::string companion_token(uint32_t base_job_id, std::string_view intent_id) {
  return fmt::format("{}companion-of={},intent={})", kTagOpen, base_job_id, intent_id);
}

std::optional<CompanionTag> companion_from_comment(std::string_view admin_comment) {
  for (size_t at = 0;;) {
    const std::optional<TagSpan> tag = find_tag(admin_comment, at);
    if (!tag) return std::nullopt;
    at = tag->end;
    if (!tag->closed || !is_companion_body(tag->body)) continue;
    const std::vector<std::string> fields = split(tag->body, ',');
    if (fields.size() != 2 || !fields[1].starts_with("intent=")) continue;
    const Result<int64_t> id = parse_int(fields[0].substr(fields[0].find('=') + 1));
    if (!id.ok() || *id <= 0 || *id > UINT32_MAX) continue;
    return CompanionTag{static_cast<uint32_t>(*id), fields[1].substr(7)};
  }
}

}  // namespace flextrain::protocol
