// SPDX-License-Identifier: MIT
#include "trainer/data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "base/file.h"
#include "tests/trainer/temp_folder.h"
#include "trainer/data/dataset.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

Status write_tokens(const std::string& prefix, const std::vector<std::vector<int>>& documents,
                    int64_t vocab) {
  ASSIGN_OR_RETURN(TokenFileWriter writer, TokenFileWriter::create(prefix, "tmp", vocab));
  for (const auto& document : documents) RETURN_IF_ERROR(writer.add_document(document));
  return writer.finish();
}

class TokenFileTest : public TempFolder {};

TEST_F(TokenFileTest, RoundTripInBothWidths) {
  for (const int64_t vocab : {65536, 65537}) {
    const std::string prefix = path(fmt::format("v{}", vocab));
    ASSERT_TRUE(write_tokens(prefix, {{1, 2, 65535}, {}, {7}}, vocab).ok());
    const auto file = TokenFile::open(prefix);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(file->tokens(), 4);
    EXPECT_EQ(file->documents(), 3);
    std::vector<int32_t> tokens(4);
    file->read(0, tokens);
    EXPECT_EQ(tokens, (std::vector<int32_t>{1, 2, 65535, 7}));
    EXPECT_EQ(file->bin().bytes().size(), vocab == 65536 ? 8u : 16u);
    EXPECT_EQ(*file->largest_token(), 65535);
  }
}

// Byte for byte what Megatron-LM's indexed dataset holds for documents {5, 6} and {7} in u16.
TEST_F(TokenFileTest, LayoutIsMegatrons) {
  ASSERT_TRUE(write_tokens(path("m"), {{5, 6}, {7}}, 100).ok());
  const std::string idx = *read_file(path("m.idx"));
  std::string expected("MMIDIDX\0\0", 9);
  const auto add = [&expected](auto value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    expected.append(bytes, sizeof value);
  };
  add(uint64_t{1});
  add(uint8_t{8});
  add(uint64_t{2});
  add(uint64_t{3});
  add(int32_t{2});
  add(int32_t{1});
  add(int64_t{0});
  add(int64_t{4});
  add(int64_t{0});
  add(int64_t{1});
  add(int64_t{2});
  EXPECT_EQ(idx, expected);
  EXPECT_EQ(*read_file(path("m.bin")), std::string("\5\0\6\0\7\0", 6));
}

TEST_F(TokenFileTest, UnfinishedWriterLeavesNothing) {
  {
    auto writer = TokenFileWriter::create(path("u"), "tmp", 100);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->add_document(std::vector<int>{1, 2}).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(path("")));
}

TEST_F(TokenFileTest, DamagedIndexIsRefusedClearly) {
  ASSERT_TRUE(write_tokens(path("d"), {{5, 6}, {7}}, 100).ok());
  const std::string good = *read_file(path("d.idx"));
  const struct {
    const char* what;
    std::function<std::string(std::string)> damage;
  } cases[] = {
      {"truncated: 0 bytes", [](std::string) { return std::string(); }},
      {"truncated: 20 bytes", [](std::string idx) { return idx.substr(0, 20); }},
      {"truncated", [](std::string idx) { return idx.substr(0, idx.size() - 8); }},
      {"does not begin with MMIDIDX", [](std::string idx) { return idx.replace(0, 1, "X"); }},
      {"version 2", [](std::string idx) { return idx.replace(9, 1, "\2"); }},
      {"dtype 6", [](std::string idx) { return idx.replace(17, 1, "\6"); }},
      {"dtype 99", [](std::string idx) { return idx.replace(17, 1, "c"); }},
      {"truncated", [](std::string idx) { return idx.replace(18, 8, std::string(8, '\xff')); }},
      {"truncated", [](std::string idx) { return idx.replace(26, 8, std::string(8, '\x7f')); }},
      {"sequence 0 has length -1",
       [](std::string idx) { return idx.replace(34, 4, std::string(4, '\xff')); }},
      {"sequence 1", [](std::string idx) { return idx.replace(50, 1, "\6"); }},
      {"describes 8 bytes", [](std::string idx) { return idx.replace(38, 1, "\2"); }},
  };
  for (const auto& one : cases) {
    ASSERT_TRUE(write_file_atomically(path("d.idx"), one.damage(good)).ok());
    const auto file = TokenFile::open(path("d"));
    ASSERT_FALSE(file.ok()) << one.what;
    EXPECT_EQ(file.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(file.status().message(), HasSubstr(one.what));
  }
  // Garbage of any length never crashes the reader.
  std::string garbage = good;
  for (size_t i = 0; i < good.size(); ++i) {
    garbage[i] = static_cast<char>(garbage[i] ^ 0x5a);
    ASSERT_TRUE(write_file_atomically(path("d.idx"), garbage).ok());
    (void)TokenFile::open(path("d"));
  }
}

TEST_F(TokenFileTest, ShortBinIsRefused) {
  ASSERT_TRUE(write_tokens(path("s"), {{5, 6, 7}}, 100).ok());
  ASSERT_TRUE(write_file_atomically(path("s.bin"), std::string("\5\0\6\0", 4)).ok());
  const auto file = TokenFile::open(path("s"));
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.status().message(), HasSubstr("has 4"));
}

TEST_F(TokenFileTest, PrefixAcceptsBothEndings) {
  EXPECT_EQ(token_file_prefix("a/b.bin"), "a/b");
  EXPECT_EQ(token_file_prefix("a/b.idx"), "a/b");
  EXPECT_EQ(token_file_prefix("a/b"), "a/b");
}

class DatasetTest : public TempFolder {
 protected:
  Result<Dataset> make(int tokens, int sequence, double eval_fraction) {
    std::vector<int> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(i);
    RETURN_IF_ERROR(write_tokens(path("data"), {ids}, 60000));
    ASSIGN_OR_RETURN(TokenFile file, TokenFile::open(path("data")));
    TrainConfig config;
    config.model.sequence = sequence;
    config.eval_fraction = eval_fraction;
    return Dataset::create(std::move(file), config);
  }
};

TEST_F(DatasetTest, WindowsCoverTheTextAndHoldOutTheTail) {
  const auto data = make(101, 10, 0.2);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_EQ(data->training_windows(), 8);
  EXPECT_EQ(data->evaluation_windows(), 2);
  std::vector<int32_t> window(11);
  std::vector<bool> trained(101);
  for (int64_t sample = 0; sample < 8; ++sample) {
    data->training_sample(sample, window);
    EXPECT_EQ(window.front() % 10, 0);
    for (size_t i = 1; i < window.size(); ++i) {
      EXPECT_EQ(window[i], window[i - 1] + 1);
      trained[static_cast<size_t>(window[i])] = true;
    }
  }
  for (int i = 1; i <= 80; ++i) EXPECT_TRUE(trained[static_cast<size_t>(i)]) << i;
  for (int64_t sample = 0; sample < 4; ++sample) {
    data->evaluation_sample(sample, window);
    for (size_t i = 1; i < window.size(); ++i) {
      EXPECT_FALSE(trained[static_cast<size_t>(window[i])]);  // no held-out target is trained on
    }
    EXPECT_EQ(window.front(), 80 + 10 * (sample % 2));
  }
}

TEST_F(DatasetTest, ShortTextIsRefused) {
  const auto none = make(10, 10, 0);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("too short"));
  EXPECT_TRUE(make(11, 10, 0).ok());
  const auto no_room = make(11, 10, 0.1);
  ASSERT_FALSE(no_room.ok());
  EXPECT_THAT(no_room.status().message(), HasSubstr("held out"));
  EXPECT_TRUE(make(21, 10, 0.1).ok());
}

}  // namespace
}  // namespace flextrain::trainer
