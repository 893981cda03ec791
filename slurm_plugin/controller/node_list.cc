// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/node_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/text.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr size_t kMaxHosts = 65536;
constexpr size_t kMaxDigits = 18;  // of a number in brackets: it fits, padded or not
constexpr int kMaxBrackets = 16;   // groups in one name

// Splits at commas outside brackets.
std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') ++depth;
    if (text[at] == ']') --depth;
    if (text[at] == ',' && depth == 0) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// "1-3,07" → "1","2","3","07".
Result<std::vector<std::string>> expand_ranges(std::string_view text) {
  std::vector<std::string> values;
  for (const std::string& range : split(text, ',')) {
    const size_t dash = range.find('-');
    const std::string low_text = range.substr(0, dash);
    ASSIGN_OR_RETURN(const int64_t low, parse_int(low_text));
    int64_t high = low;
    if (dash != std::string::npos) {
      ASSIGN_OR_RETURN(high, parse_int(std::string_view(range).substr(dash + 1)));
    }
    if (low < 0 || high < low || static_cast<size_t>(high - low) >= kMaxHosts ||
        low_text.size() > kMaxDigits) {
      return invalid_argument("'{}' is no range", range);
    }
    if (values.size() + static_cast<size_t>(high - low) >= kMaxHosts) {
      return invalid_argument("more than {} names", kMaxHosts);
    }
    for (int64_t value = low; value <= high; ++value) {
      values.push_back(fmt::format("{:0{}}", value, low_text.size()));
    }
  }
  return values;
}

Status expand_one(std::string_view text, const std::string& prefix, int brackets,
                  std::vector<std::string>& hosts) {
  const size_t open = text.find('[');
  if (open == std::string_view::npos) {
    if (text.find(']') != std::string_view::npos) return invalid_argument("']' without '['");
    if (prefix.empty() && text.empty()) return invalid_argument("an empty name");
    if (hosts.size() >= kMaxHosts) return invalid_argument("more than {} names", kMaxHosts);
    hosts.push_back(prefix + std::string(text));
    return {};
  }
  const size_t close = text.find(']', open);
  if (close == std::string_view::npos) return invalid_argument("'[' without ']'");
  if (brackets == kMaxBrackets) return invalid_argument("more than {} brackets", kMaxBrackets);
  ASSIGN_OR_RETURN(const auto values, expand_ranges(text.substr(open + 1, close - open - 1)));
  if (values.empty()) return invalid_argument("'[]' holds no number");
  for (const std::string& value : values) {
    RETURN_IF_ERROR(expand_one(text.substr(close + 1),
                               prefix + std::string(text.substr(0, open)) + value, brackets + 1,
                               hosts));
  }
  return {};
}

// Recursive descent over  or := and {'|' and};  and := term {'&' term};
// term := '(' or ')' | '[' or ']' | name ['*' count].
class FeatureParser {
 public:
  FeatureParser(std::string_view text, const std::vector<std::string>& features)
      : text_(text), features_(features) {}
  std::optional<bool> parse() {
    const std::optional<bool> value = parse_or();
    skip_blanks();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char symbol) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != symbol) return false;
    ++at_;
    return true;
  }
  std::optional<bool> parse_or() {
    std::optional<bool> value = parse_and();
    while (value && take('|')) {
      const std::optional<bool> right = parse_and();
      if (!right) return std::nullopt;
      value = *value || *right;
    }
    return value;
  }
  std::optional<bool> parse_and() {
    std::optional<bool> value = parse_term();
    while (value && (take('&') || take(','))) {
      const std::optional<bool> right = parse_term();
      if (!right) return std::nullopt;
      value = *value && *right;
    }
    return value;
  }
  std::optional<bool> parse_term() {
    if (++depth_ > 64) return std::nullopt;
    std::optional<bool> value;
    if (take('(')) {
      value = parse_or();
      if (!take(')')) return std::nullopt;
    } else if (take('[')) {
      value = parse_or();
      if (!take(']')) return std::nullopt;
    } else {
      skip_blanks();
      const size_t begin = at_;
      while (at_ < text_.size() &&
             std::string_view("&|()[]*, ").find(text_[at_]) == std::string_view::npos) {
        ++at_;
      }
      if (at_ == begin) return std::nullopt;
      const std::string_view name = text_.substr(begin, at_ - begin);
      value = std::find(features_.begin(), features_.end(), name) != features_.end();
    }
    if (take('*')) {
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) ++at_;
    }
    --depth_;
    return value;
  }

  std::string_view text_;
  const std::vector<std::string>& features_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view text) {
  std::vector<std::string> hosts;
  if (trim(text).empty()) return hosts;
  for (const std::string_view part : split_outside_brackets(trim(text))) {
    if (Status status = expand_one(trim(part), "", 0, hosts); !status.ok()) {
      return invalid_argument("host list '{}': {}", text, status.message());
    }
  }
  return hosts;
}

bool features_match(std::string_view expression, const std::vector<std::string>& features) {
  if (trim(expression).empty()) return true;
  return FeatureParser(expression, features).parse().value_or(false);
}

}  // namespace flextrain::slurm_plugin
