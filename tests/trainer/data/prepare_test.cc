// SPDX-License-Identifier: MIT
#include "trainer/data/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "tests/trainer/temp_folder.h"
#include "trainer/data/token_file.h"
#include "trainer/data/tokenizer.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

// A few thousand sentences over a small vocabulary, enough for 400 pieces.
std::string sample_text(int sentences, unsigned seed = 1) {
  const char* words[] = {"heaven",   "earth",   "water",    "spirit",      "light",
                         "darkness", "evening", "morning",  "beasts",      "grass",
                         "fowl",     "image",   "dominion", "generations", "garden",
                         "river",    "tree",    "serpent",  "voice",       "ground"};
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    for (int j = 0; j < 7; ++j) {
      seed = seed * 1664525u + 1013904223u;
      text += words[(seed >> 16) % 20];
      text += ' ';
    }
    text += i % 50 == 49 ? ".\n\n" : ".\n";
  }
  return text;
}

class PrepareTest : public TempFolder {
 protected:
  TrainConfig config() const {
    TrainConfig config;
    config.text_path = path("text.txt");
    config.output_dir = path("out");
    config.tokenizer_vocab = 320;
    return config;
  }
  void write_text(const std::string& text) const {
    ASSERT_TRUE(write_file_atomically(path("text.txt"), text).ok());
  }
};

TEST_F(PrepareTest, TokenizerIsDeterministicAndLossless) {
  const std::string text = sample_text(300);
  const auto one = train_tokenizer(text, 320), two = train_tokenizer(text, 320);
  ASSERT_TRUE(one.ok()) << one.status().to_string();
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(*one, *two);
  const auto tokenizer = Tokenizer::from_bytes(*one, "test");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->vocab(), 320);
  EXPECT_GE(tokenizer->newline_id(), 0);
  EXPECT_GE(tokenizer->end_of_document_id(), 0);
  // Unseen characters come back through byte fallback.
  std::vector<int> ids;
  const std::string line = "heaven  and 天 earth\t§";
  ASSERT_TRUE(tokenizer->encode_line(line, ids).ok());
  EXPECT_EQ(*tokenizer->decode(ids), line);
}

TEST_F(PrepareTest, ShortTextForTheVocabularyIsExplained) {
  const auto model = train_tokenizer("a few words\n", 4096);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), HasSubstr("data.tokenizer_vocab"));
  EXPECT_FALSE(train_tokenizer("\n\n", 320).ok());
  EXPECT_FALSE(Tokenizer::from_bytes("garbage", "x.model").ok());
  EXPECT_FALSE(Tokenizer::from_bytes("", "x.model").ok());
}

TEST_F(PrepareTest, BuildsOnceAndNoticesChanges) {
  write_text(sample_text(300));
  const auto first = prepare_data(config());
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_TRUE(first->built);
  EXPECT_EQ(first->tokenizer_vocab, 320);
  EXPECT_LT(first->largest_token, 320);
  const std::string bin = *read_file(path("out/tokens.bin"));

  const auto again = prepare_data(config());
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->built);
  EXPECT_EQ(again->hash, first->hash);
  EXPECT_EQ(again->tokens, first->tokens);

  // The same text under a new time is recognised by its hash.
  write_text(sample_text(300));
  EXPECT_FALSE(prepare_data(config())->built);

  // Another text of the same length is not.
  std::string other = sample_text(300);
  other[0] = 'H';
  write_text(other);
  const auto changed = prepare_data(config());
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  EXPECT_TRUE(changed->built);
  EXPECT_NE(changed->hash, first->hash);
  EXPECT_NE(*read_file(path("out/tokens.bin")), bin);
}

TEST_F(PrepareTest, DamageIsRepairedFromTheText) {
  write_text(sample_text(300));
  const auto first = prepare_data(config());
  ASSERT_TRUE(first.ok());
  for (const char* file : {"out/tokens.bin", "out/tokens.idx", "out/tokens.json"}) {
    ASSERT_TRUE(write_file_atomically(path(file), "").ok());
    const auto again = prepare_data(config());
    if (std::string(file) == "out/tokens.json") {
      // Without its side file a token file may be the user's: it is not overwritten.
      ASSERT_FALSE(again.ok());
      EXPECT_EQ(again.status().code(), StatusCode::kAlreadyExists);
      EXPECT_THAT(again.status().message(), HasSubstr("data.tokens"));
    } else {
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_TRUE(again->built) << file;
      EXPECT_EQ(again->tokens, first->tokens);
    }
  }
}

TEST_F(PrepareTest, RacingProcessesAgree) {
  write_text(sample_text(300));
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto data = prepare_data(config());
      ::_exit(!data.ok() ? 2 : data->built ? 1 : 0);
    }
    children.push_back(child);
  }
  int built = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_LT(WEXITSTATUS(status), 2);
    built += WEXITSTATUS(status);
  }
  EXPECT_EQ(built, 1);
  EXPECT_TRUE(TokenFile::open(path("out/tokens")).ok());
}

TEST_F(PrepareTest, MissingAndEmptyTextAreErrors) {
  EXPECT_EQ(prepare_data(config()).status().code(), StatusCode::kNotFound);
  write_text("");
  EXPECT_EQ(prepare_data(config()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(PrepareTest, OwnTokenFilesAreCheckedAgainstTheVocabulary) {
  auto writer = TokenFileWriter::create(path("own"), "tmp", 1000);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->add_document(std::vector<int>{1, 999, 5}).ok());
  ASSERT_TRUE(writer->finish().ok());
  TrainConfig config;
  config.tokens_path = path("own.bin");
  for (int round = 0; round < 2; ++round) {  // the second time from the side file
    const auto data = prepare_data(config);
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    EXPECT_EQ(data->tokens, 3);
    EXPECT_EQ(data->largest_token, 999);
    EXPECT_FALSE(vocab_for(config, *data).ok());  // no tokeniser, no model.vocab
    config.model.vocab = 999;
    const auto small = vocab_for(config, *data);
    ASSERT_FALSE(small.ok());
    EXPECT_THAT(small.status().message(), HasSubstr("token 999"));
    config.model.vocab = 1000;
    EXPECT_EQ(*vocab_for(config, *data), 1000);
    config.model.vocab = 0;
  }
}

}  // namespace
}  // namespace flextrain::trainer
