// SPDX-License-Identifier: MIT
#include "trainer/config/config_reader.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "base/toml.h"
#include "trainer/config/config_fields.h"

namespace flextrain::trainer {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;

std::string valid_sections(const std::vector<ConfigField>& fields) {
  std::string names;
  std::string_view last;
  for (const ConfigField& field : fields) {
    if (field.section == last) continue;
    last = field.section;
    names += (names.empty() ? "" : ", ") + std::string(field.section);
  }
  return names;
}

std::string valid_names(const std::vector<ConfigField>& fields, std::string_view section) {
  std::string names;
  for (const ConfigField& field : fields) {
    if (field.section == section) names += (names.empty() ? "" : ", ") + std::string(field.name);
  }
  return names;
}

std::optional<ConfigValue> toml_value(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return ConfigValue(v->get());
  if (const auto* v = node.as_integer()) return ConfigValue(v->get());
  if (const auto* v = node.as_floating_point()) return ConfigValue(v->get());
  if (const auto* v = node.as_string()) return ConfigValue(v->get());
  return std::nullopt;
}

// The field called section.name, or the message that lists what there is.
Result<const ConfigField*> find_field(const std::vector<ConfigField>& fields,
                                      std::string_view section, std::string_view name) {
  const std::string names = valid_names(fields, section);
  if (names.empty()) {
    return invalid_argument("unknown section [{}]; valid sections: {}", section,
                            valid_sections(fields));
  }
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const ConfigField& field) {
    return field.section == section && field.name == name;
  });
  if (found == fields.end()) {
    return invalid_argument("unknown key '{}' in [{}]; valid keys: {}", name, section, names);
  }
  return &*found;
}

Status apply_table(const toml::table& table, const std::vector<ConfigField>& fields,
                   std::string_view file_name) {
  const auto at = [&](const toml::node& node, const Status& status) {
    return status.with_context(fmt::format("{}:{}", file_name, node.source().begin.line));
  };
  for (const auto& [section_key, section_node] : table) {
    const toml::table* section = section_node.as_table();
    if (section == nullptr) {
      return at(section_node,
                invalid_argument("key '{}' stands outside a section; valid sections: {}",
                                 section_key.str(), valid_sections(fields)));
    }
    if (valid_names(fields, section_key.str()).empty()) {
      return at(section_node, invalid_argument("unknown section [{}]; valid sections: {}",
                                               section_key.str(), valid_sections(fields)));
    }
    for (const auto& [key, node] : *section) {
      const Result<const ConfigField*> field = find_field(fields, section_key.str(), key.str());
      if (!field.ok()) return at(node, field.status());
      const std::optional<ConfigValue> value = toml_value(node);
      if (!value.has_value()) {
        return at(node, invalid_argument("{}.{} must be {}", section_key.str(), key.str(),
                                         describe_field(**field)));
      }
      if (Status status = assign_field(**field, *value); !status.ok()) return at(node, status);
    }
  }
  return {};
}

Result<ConfigValue> parse_override_value(const std::string& text) {
  try {
    const toml::table table = toml::parse("value = " + text);
    if (table.size() == 1) {
      if (const auto value = toml_value(*table.get("value"))) return *value;
    }
  } catch (const std::exception&) {
    // Not TOML: a bare word, which is a string.
  }
  return ConfigValue(text);
}

Status apply_override(const std::string& text, const std::vector<ConfigField>& fields) {
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    return invalid_argument("'{}' is not of the form section.key=value", text);
  }
  const std::string section(trim(text.substr(0, dot)));
  const std::string name(trim(text.substr(dot + 1, equals - dot - 1)));
  ASSIGN_OR_RETURN(const ConfigField* field, find_field(fields, section, name));
  const std::string raw(trim(text.substr(equals + 1)));
  // Strings need no quotes on a command line, so that --set data.text=2024 is a path.
  const bool bare_string = std::holds_alternative<std::string*>(field->target) &&
                           (raw.empty() || (raw[0] != '"' && raw[0] != '\''));
  if (bare_string) return assign_field(*field, ConfigValue(raw));
  ASSIGN_OR_RETURN(const ConfigValue value, parse_override_value(raw));
  return assign_field(*field, value);
}

}  // namespace

Status parse_fields(std::string_view text, std::string_view file_name,
                    const std::vector<ConfigField>& fields) {
  try {
    const toml::table table = toml::parse(text, file_name);
    return apply_table(table, fields, file_name);
  } catch (const toml::parse_error& error) {
    return invalid_argument("{}:{}: {}", file_name, error.source().begin.line, error.description());
  } catch (const std::exception& error) {
    return invalid_argument("{}: {}", file_name, error.what());
  }
}

Result<TrainConfig> parse_train_config(std::string_view text, std::string_view file_name,
                                       const std::vector<std::string>& overrides) {
  TrainConfig config;
  const std::vector<ConfigField> fields = config_fields(config);
  RETURN_IF_ERROR(parse_fields(text, file_name, fields));
  for (const std::string& override : overrides) {
    if (Status status = apply_override(override, fields); !status.ok()) {
      return status.with_context(fmt::format("--set {}", override));
    }
  }
  if (Status status = validate_config(config); !status.ok()) return status.with_context(file_name);
  return config;
}

Result<TrainConfig> read_train_config(const std::string& path,
                                      const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const std::string text, read_input_file(path, kMaxConfigBytes));
  return parse_train_config(text, path, overrides);
}

Result<std::string> read_input_file(const std::string& path, size_t max_bytes) {
  Result<std::string> text = read_file(path, max_bytes);
  if (!text.ok() && text.status().code() == StatusCode::kResourceExhausted) {
    return invalid_argument("{}: it cannot be what is meant", text.status().message());
  }
  return text;
}

}  // namespace flextrain::trainer
