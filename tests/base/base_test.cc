// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/key_value_config.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "tests/temp_folder.h"

namespace flextrain {
namespace {

TEST(Status, ContextGoesBeforeTheMessageAndOkStaysOk) {
  EXPECT_EQ(not_found("no '{}'", "x").with_context("reading").to_string(),
            "NOT_FOUND: reading: no 'x'");
  EXPECT_TRUE(Status().with_context("reading").ok());
}

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("{} is odd", value);
  return value / 2;
}
Result<int> quarter(int value) {
  ASSIGN_OR_RETURN(const int once, half(value));
  ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

TEST(Result, MacrosPassValuesAndErrors) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd");
}

TEST(File, AtomicWriteReplacesAndLeavesNoTemporary) {
  TempFolder dir;
  ASSERT_TRUE(write_file_atomically(dir.path("a"), "one").ok());
  ASSERT_TRUE(write_file_atomically(dir.path("a"), "two", 0600).ok());
  EXPECT_EQ(read_file(dir.path("a")).value(), "two");
  struct stat info {};
  ASSERT_EQ(stat(dir.path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()),
                          std::filesystem::directory_iterator()),
            1);
}

TEST(File, ErrorsNameTheFile) {
  TempFolder dir;
  const Status missing = read_file(dir.path("none")).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("none"), std::string::npos);
  ASSERT_TRUE(write_file_atomically(dir.path("big"), "12345").ok());
  EXPECT_EQ(read_file(dir.path("big"), 4).status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(write_file_atomically(dir.path("no/such/dir"), "x").ok());
}

// An admin's mkfifo flextrain.conf once held slurmctld, locks and all, until somebody wrote to it.
TEST(File, APipeIsRefusedNotWaitedFor) {
  TempFolder dir;
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_file(dir.path("pipe")).status().code(), StatusCode::kInvalidArgument);
}

TEST(Config, ReadsPairsCommentsAndCase) {
  const auto entries = parse_key_value_config("# c\n A = b c # d\n\nFoo=1\n", "f.conf");
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].value, "b c");
  EXPECT_EQ((*entries)[1].line, 4);
}

TEST(Config, BadLinesAreRefusedWithFileAndLine) {
  EXPECT_EQ(parse_key_value_config("a=1\nnonsense\n", "f.conf").status().message(),
            "f.conf:2: expected Key=Value, found 'nonsense'");
  EXPECT_EQ(parse_key_value_config("a=1\nA=2\n", "f.conf").status().message(),
            "f.conf:2: A is set again (first on line 1); remove one");
  EXPECT_FALSE(parse_key_value_config("=1", "f.conf").ok());
}

TEST(Text, NumbersAreStrict) {
  EXPECT_EQ(parse_int("-12").value(), -12);
  for (const char* bad : {"", " 1", "1 ", "1x", "99999999999999999999"}) {
    EXPECT_FALSE(parse_int(bad).ok()) << bad;
  }
  EXPECT_EQ(parse_double("1e-3").value(), 1e-3);
  for (const char* bad : {"", "nan", "inf", "1,5"}) EXPECT_FALSE(parse_double(bad).ok()) << bad;
  EXPECT_TRUE(parse_bool("Yes").value());
  EXPECT_FALSE(parse_bool("maybe").ok());
}

TEST(Text, DoublesRoundTrip) {
  for (const double value : {0.1, 1.0 / 3, 1e300, -5e-324, 2.718281828459045}) {
    EXPECT_EQ(parse_double(format_double(value)).value(), value);
    EXPECT_EQ(strtod(format_hex_double(value).c_str(), nullptr), value);
  }
}

TEST(Text, SplitKeepsEmptyFields) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_TRUE(split("", ',').empty());
}

TEST(Text, PrintableCannotForgeALine) {
  EXPECT_EQ(printable("plain → text"), "plain → text");
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f"), "a?b?[31m?");
  EXPECT_EQ(printable("\xff\xc3(\xe2\x86 \xc2\x9b"),
            "??"
            "(?? ??");
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("ab→", 4), "ab…");  // no half characters
  EXPECT_EQ(printable(""), "");
}

std::string last_line;
TEST(Log, ForeignTextStaysInItsLine) {
  set_log_sink([](LogLevel, std::string_view line) { last_line = line; });
  log_error("bye: {}", "x\n[2026-01-01] error: forged");
  set_log_sink(nullptr);
  EXPECT_EQ(last_line, "bye: x?[2026-01-01] error: forged");
}

TEST(Text, IdsDiffer) { EXPECT_NE(random_hex_id(), random_hex_id()); }

TEST(JsonText, BadTextIsAStatus) {
  EXPECT_EQ(parse_json("{", "manifest").status().message(), "manifest is not valid JSON");
  const auto decoded =
      decode_json("plan", [] { return Json::parse("{\"a\":\"x\"}").at("a").get<int>(); });
  EXPECT_EQ(decoded.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace flextrain
