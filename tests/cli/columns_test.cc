// SPDX-License-Identifier: MIT
#include "cli/columns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cli/values.h"

namespace flextrain::cli {
namespace {

std::vector<Field> fields() {
  const auto key = [](std::string name) {
    return [name](const Json& row) { return text_of(row, name); };
  };
  return {{"JobID", 6, key("id")}, {"Name", 5, key("name")}, {"Reason", -8, key("reason")}};
}

const std::vector<Json> kRows = {
    {{"id", "7"}, {"name", "train"}, {"reason", "short"}},
    {{"id", "12345678"}, {"name", "ärmel"}, {"reason", "a long reason"}},
};

TEST(Columns, AlignedAndCutAsSacctDoes) {
  EXPECT_EQ(print_table(fields(), kRows, {}),
            " JobID  Name Reason\n"
            "------ ----- --------\n"
            "     7 train short\n"
            "12345+ ärmel a long +\n");
}

TEST(Columns, NoHeader) {
  EXPECT_EQ(print_table(fields(), {kRows[0]}, {false, false}), "     7 train short\n");
}

TEST(Columns, Parsable) {
  EXPECT_EQ(print_table(fields(), kRows, {true, true}),
            "JobID|Name|Reason\n"
            "7|train|short\n"
            "12345678|ärmel|a long reason\n");
}

TEST(Columns, TerminalsAreSafeFromNames) {
  const std::vector<Json> rows = {{{"id", "1"}, {"name", "a\x1b[2Jb"}, {"reason", "x\ny\xff"}}};
  EXPECT_EQ(print_table(fields(), rows, {false, true}), "1|a?[2Jb|x?y?\n");
}

TEST(Columns, SelectFields) {
  const auto picked = select_fields(fields(), "reason%20, jobid%-3");
  ASSERT_TRUE(picked.ok());
  ASSERT_EQ(picked->size(), 2u);
  EXPECT_EQ((*picked)[0].name, "Reason");
  EXPECT_EQ((*picked)[0].width, 20);
  EXPECT_EQ((*picked)[1].width, -3);
  EXPECT_EQ(select_fields(fields(), "ALL")->size(), 3u);
  EXPECT_EQ(select_fields(fields(), "name%")->at(0).width, 5);
  for (const char* bad : {"", ",", "Nme", "Name%x", "Name%0", "Name%99999"})
    EXPECT_EQ(select_fields(fields(), bad).status().code(), StatusCode::kInvalidArgument) << bad;
  EXPECT_NE(select_fields(fields(), "Nme").status().message().find("JobID, Name, Reason"),
            std::string::npos);
}

TEST(Values, Shortened) {
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdef", 5), "abcd+");
  EXPECT_EQ(shortened("äöüß", 3), "äö+");
  EXPECT_EQ(shortened("ab", 1), "+");
}

TEST(Values, Numbers) {
  EXPECT_EQ(number_text(1850), "1850");
  EXPECT_EQ(number_text(12.5), "12.5");
  EXPECT_EQ(number_text(0.00107639, 4), "0.001076");
  EXPECT_EQ(number_text(123456.7, 4), "123457");
  EXPECT_EQ(number_text(2.65), "2.65");
  EXPECT_EQ(number_text(-0.5), "-0.5");
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(std::nan("")), "");
  EXPECT_EQ(number_text(1e-9), "1e-09");
  EXPECT_EQ(bytes_text(0), "");
  EXPECT_EQ(bytes_text(1536), "1.5K");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3G");
}

TEST(Values, UntrustedRows) {
  const Json row = {{"n", "text"}, {"t", 5}, {"f", 1e300}};
  EXPECT_EQ(int_of(row, "n"), 0);
  EXPECT_EQ(int_of(row, "f"), 0);
  EXPECT_EQ(text_of(row, "t"), "");
  EXPECT_TRUE(std::isnan(double_of(row, "n")));
  EXPECT_FALSE(bool_of(row, "t"));
  EXPECT_TRUE(member(Json::array({1}), "x").is_null());
}

}  // namespace
}  // namespace flextrain::cli
