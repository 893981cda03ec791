// SPDX-License-Identifier: MIT
#include "cli/columns.h"

#include <cstdlib>

#include "base/text.h"
#include "cli/values.h"

namespace flextrain::cli {
namespace {

constexpr int kMaxWidth = 10000;

std::string cell(const std::string& value, int width) {
  const auto columns = static_cast<size_t>(std::abs(width));
  const std::string text = shortened(value, columns);
  const std::string padding(columns - width_of(text), ' ');
  return width < 0 ? text + padding : padding + text;
}

std::string names(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) text += (text.empty() ? "" : ", ") + field.name;
  return text;
}

// The line without the blanks at its end: a terminal as wide as the table must not wrap.
void end_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + '\n';
}

}  // namespace

Result<std::vector<Field>> select_fields(const std::vector<Field>& fields,
                                         std::string_view format) {
  std::vector<Field> selected;
  for (const std::string& item : split(format, ',')) {
    const std::string_view text = trim(item);
    if (text.empty()) continue;
    const size_t percent = text.find('%');
    const std::string name = to_lower(trim(text.substr(0, percent)));
    if (name == "all") {
      selected.insert(selected.end(), fields.begin(), fields.end());
      continue;
    }
    const Field* found = nullptr;
    for (const Field& field : fields)
      if (to_lower(field.name) == name) found = &field;
    if (found == nullptr)
      return invalid_argument("there is no field '{}'; the fields are {}", text.substr(0, percent),
                              names(fields));
    selected.push_back(*found);
    if (percent == std::string_view::npos || percent + 1 == text.size()) continue;
    const Result<int64_t> width = parse_int(text.substr(percent + 1));
    if (!width.ok() || *width == 0 || std::abs(*width) > kMaxWidth)
      return invalid_argument("'{}': a field's width is a number such as %20 or %-20", text);
    selected.back().width = static_cast<int>(*width);
  }
  if (selected.empty()) return invalid_argument("--format names no field");
  return selected;
}

std::string print_table(const std::vector<Field>& fields, const std::vector<Json>& rows,
                        const TableStyle& style) {
  std::string out;
  if (style.parsable) {
    const auto line = [&](const auto& text_of_field) {
      std::string joined;
      for (size_t i = 0; i < fields.size(); ++i)
        joined += (i == 0 ? "" : "|") + text_of_field(fields[i]);
      out += joined + '\n';
    };
    if (style.header) line([](const Field& field) { return field.name; });
    for (const Json& row : rows)
      line([&](const Field& field) { return printable(field.value(row)); });
    return out;
  }
  const auto line = [&](const auto& text_of_field) {
    std::string joined;
    for (size_t i = 0; i < fields.size(); ++i)
      joined += (i == 0 ? "" : " ") + cell(text_of_field(fields[i]), fields[i].width);
    end_line(out, joined);
  };
  if (style.header) {
    line([](const Field& field) { return field.name; });
    line([](const Field& field) {
      return std::string(static_cast<size_t>(std::abs(field.width)), '-');
    });
  }
  for (const Json& row : rows)
    line([&](const Field& field) { return printable(field.value(row)); });
  return out;
}

std::string help_format(const std::vector<Field>& fields) {
  std::string out, line;
  for (size_t i = 0; i < fields.size(); ++i) {
    line += fmt::format("{:<19} ", fields[i].name);
    if (i % 4 == 3 || i + 1 == fields.size()) {
      end_line(out, line);
      line.clear();
    }
  }
  return out;
}

}  // namespace flextrain::cli
