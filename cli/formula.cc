// SPDX-License-Identifier: MIT
#include "cli/formula.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "cli/values.h"

namespace flextrain::cli {
namespace {

bool is_symbol_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Recursive descent; the first error sticks and everything returns 0 from there on.
class Parser {
 public:
  Parser(std::string_view text, const std::map<std::string, double>& inputs)
      : text_(text), inputs_(inputs) {}

  Result<bool> clause() {
    double left = expression();
    bool holds = true;
    int comparisons = 0;
    while (const std::optional<std::string> op = comparison()) {
      const double right = expression();
      holds = holds && compare(left, *op, right);
      left = right;
      ++comparisons;
    }
    if (error_.ok() && position_ != text_.size())
      error_ = invalid_argument("'{}' is not understood after '{}'", text_.substr(position_),
                                text_.substr(0, position_));
    if (error_.ok() && comparisons == 0) error_ = invalid_argument("'{}' compares nothing", text_);
    if (!error_.ok()) return error_;
    return holds;
  }

 private:
  void skip_blanks() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
  }
  bool take(char c) {
    skip_blanks();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  std::optional<std::string> comparison() {
    skip_blanks();
    if (!error_.ok()) return std::nullopt;
    for (const std::string_view op : {">=", "<=", ">", "<", "="})
      if (text_.substr(position_, op.size()) == op) {
        position_ += op.size();
        return std::string(op);
      }
    return std::nullopt;
  }
  static bool compare(double a, const std::string& op, double b) {
    if (op == ">") return a > b;
    if (op == "<") return a < b;
    if (op == ">=") return a >= b;
    if (op == "<=") return a <= b;
    return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)});
  }

  double expression() {
    double value = term();
    for (;;) {
      if (take('+'))
        value += term();
      else if (take('-'))
        value -= term();
      else
        return value;
    }
  }
  double term() {
    double value = factor();
    for (;;) {
      if (take('*'))
        value *= factor();
      else if (take('/'))
        value /= factor();
      else
        return value;
    }
  }
  double factor() {
    if (!error_.ok()) return 0;
    if (++depth_ > 100) return fail(invalid_argument("'{}' is nested too deeply", text_));
    const double value = atom();
    --depth_;
    return value;
  }
  double atom() {
    if (take('-')) return -factor();
    if (take('(')) {
      const double value = expression();
      if (!take(')')) return fail(invalid_argument("'{}': a ')' is missing", text_));
      return value;
    }
    skip_blanks();
    const size_t begin = position_;
    while (position_ < text_.size() &&
           (is_symbol_char(text_[position_]) || text_[position_] == '.'))
      ++position_;
    const std::string name(text_.substr(begin, position_ - begin));
    if (name.empty()) return fail(invalid_argument("'{}': a value is missing", text_));
    if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
      const Result<double> number = parse_double(name);
      return number.ok() ? *number : fail(number.status());
    }
    if (take('(')) return function(name);
    const auto found = inputs_.find(name);
    if (found == inputs_.end()) return fail(not_found("no value for {}", name));
    return found->second;
  }
  double function(const std::string& name) {
    std::vector<double> arguments = {expression()};
    while (take(',')) arguments.push_back(expression());
    if (!take(')')) return fail(invalid_argument("'{}': a ')' is missing", text_));
    if (name == "exp" && arguments.size() == 1) return std::exp(arguments[0]);
    if (name == "min") return *std::min_element(arguments.begin(), arguments.end());
    if (name == "max") return *std::max_element(arguments.begin(), arguments.end());
    return fail(invalid_argument("there is no function {} of {} values", name, arguments.size()));
  }
  double fail(const Status& status) {
    if (error_.ok()) error_ = status;
    return 0;
  }

  std::string_view text_;
  const std::map<std::string, double>& inputs_;
  size_t position_ = 0;
  int depth_ = 0;
  Status error_;
};

std::string put_in(std::string_view text, const std::map<std::string, double>& inputs) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (!is_symbol_char(text[i])) {
      out += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() && (is_symbol_char(text[end]) || text[end] == '.')) ++end;
    const std::string word(text.substr(i, end - i));
    const auto found = inputs.find(word);
    const bool call = end < text.size() && text[end] == '(';
    out += found != inputs.end() && !call ? number_text(found->second, 5) : word;
    i = end;
  }
  return out;
}

}  // namespace

Result<std::vector<EvaluatedClause>> evaluate_formula(std::string_view formula,
                                                      const std::map<std::string, double>& inputs) {
  std::vector<EvaluatedClause> clauses;
  constexpr std::string_view kAnd = " and ";
  for (;;) {
    const size_t end = formula.find(kAnd);
    const std::string_view text = trim(formula.substr(0, end));
    ASSIGN_OR_RETURN(const bool holds, Parser(text, inputs).clause());
    clauses.push_back({std::string(text), put_in(text, inputs), holds});
    if (end == std::string_view::npos) return clauses;
    formula.remove_prefix(end + kAnd.size());
  }
}

}  // namespace flextrain::cli
