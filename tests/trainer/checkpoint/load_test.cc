// SPDX-License-Identifier: MIT
#include <fstream>
#include <functional>

#include "tests/trainer/checkpoint/checkpoint_fixture.h"
#include "trainer/checkpoint/hash.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

struct Damage {
  const char* name;
  const char* file;
  std::function<std::string(std::string)> apply;  // empty function: the file is removed
  const char* message;
};

class DamageTest : public CheckpointTest, public testing::WithParamInterface<Damage> {};

TEST_P(DamageTest, IsNamedAndThePreviousOneIsUsed) {
  ASSERT_TRUE(save(10).ok());
  ASSERT_TRUE(save(20).ok());
  const Damage& damage = GetParam();
  const std::string victim = file(20, damage.file);
  if (damage.apply) {
    ASSERT_TRUE(write_file_atomically(victim, damage.apply(*read_file(victim))).ok());
  } else {
    ASSERT_TRUE(posix_file_system().remove_all(victim).ok());
  }
  const Loaded loaded = load();
  ASSERT_TRUE(loaded.report.ok()) << loaded.report.status().to_string();
  EXPECT_EQ(loaded.value, 10);
  ASSERT_EQ(loaded.report->damages.size(), 1u);
  EXPECT_THAT(loaded.report->damages[0], HasSubstr("step-20"));
  EXPECT_THAT(loaded.report->damages[0], HasSubstr(damage.message));

  const auto verified = verify_checkpoint(posix_file_system(), path("ckpt/step-20"));
  ASSERT_FALSE(verified.ok());
  EXPECT_EQ(verified.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(verified.status().message(), HasSubstr(damage.message));

  // With nothing intact left the run stops, naming both.
  ASSERT_TRUE(write_file_atomically(file(10, "layer-0.safetensors"), "").ok());
  const Loaded none = load();
  ASSERT_FALSE(none.report.ok());
  EXPECT_EQ(none.report.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(none.report.status().message(), HasSubstr("step-20"));
  EXPECT_THAT(none.report.status().message(), HasSubstr("step-10"));
}

std::string flip_at(std::string bytes, size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  return bytes;
}

INSTANTIATE_TEST_SUITE_P(
    Table, DamageTest,
    testing::Values(
        Damage{"zero_length_layer", "layer-1.safetensors",
               [](std::string) { return std::string(); }, "layer-1.safetensors has 0 bytes"},
        Damage{"short_layer", "layer-3.safetensors",
               [](std::string b) { return b.substr(0, b.size() - 1); }, "layer-3.safetensors has"},
        Damage{"long_layer", "layer-3.safetensors", [](std::string b) { return b + "x"; },
               "layer-3.safetensors has"},
        Damage{"flipped_weight", "layer-2.safetensors",
               [](std::string b) { return flip_at(b, b.size() - 140); },
               "layer-2.safetensors does not match its checksum"},
        Damage{"flipped_header", "layer-2.safetensors",
               [](std::string b) { return flip_at(b, 40); },
               "layer-2.safetensors does not match its checksum"},
        Damage{"missing_layer", "layer-0.safetensors", nullptr, "layer-0.safetensors"},
        Damage{"missing_manifest", "manifest.json", nullptr, "manifest.json is missing"},
        Damage{"empty_manifest", "manifest.json", [](std::string) { return std::string(); },
               "manifest.json"},
        Damage{"short_manifest", "manifest.json",
               [](std::string b) { return b.substr(0, b.size() / 2); }, "manifest.json"},
        Damage{"other_json", "manifest.json", [](std::string) { return std::string("[1]"); },
               "manifest.json is no flextrain checkpoint"},
        Damage{"flipped_cursor", "manifest.json",
               [](std::string b) { return flip_at(b, b.find("\"consumed_samples\": 160") + 21); },
               "manifest.json does not match its checksum"}),
    [](const auto& info) { return info.param.name; });

// No single flipped bit anywhere in a checkpoint goes unnoticed.
TEST_F(CheckpointTest, EveryFlippedByteIsNoticed) {
  ASSERT_TRUE(save(10).ok());
  for (const char* name : {"manifest.json", "layer-1.safetensors"}) {
    const std::string good = *read_file(file(10, name));
    for (size_t at = 0; at < good.size(); ++at) {
      std::ofstream(file(10, name), std::ios::binary) << flip_at(good, at);
      ASSERT_FALSE(load().report.ok()) << name << " byte " << at;
    }
    ASSERT_TRUE(write_file_atomically(file(10, name), good).ok());
  }
  EXPECT_EQ(load().value, 10);
}

TEST_F(CheckpointTest, UnreadableFileOnOneRankIsDamageForAll) {
  ASSERT_TRUE(save(10).ok());
  ASSERT_TRUE(save(20).ok());
  run_ranks(2, [&](Communicator& comm) {
    FaultyFileSystem files(Fault::kNone, 0);
    if (comm.rank() == 1) files.make_unreadable("step-20/layer-3.safetensors");
    FakeEngine engine(comm.rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, -1);
    const auto report = load_checkpoint(files, comm, engine, config(), kFingerprint);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->manifest->cursor.step, 10);
    ASSERT_EQ(report->damages.size(), 1u);
    EXPECT_THAT(report->damages[0], HasSubstr("rank 1"));
    EXPECT_THAT(report->damages[0], HasSubstr("Input/output error"));
  });
}

TEST_F(CheckpointTest, AnotherModelIsRefusedWithTheKey) {
  ASSERT_TRUE(save(10).ok());
  TrainConfig other = config();
  other.model.hidden = 128;
  const Loaded loaded = load(other);
  ASSERT_FALSE(loaded.report.ok());
  EXPECT_EQ(loaded.report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(loaded.report.status().message(),
              HasSubstr("model.hidden is 128 here but 256 in the checkpoint"));
}

TEST_F(CheckpointTest, AnotherFingerprintIsRefusedInExactAndTakenInFp32) {
  ASSERT_TRUE(save(10).ok());
  const Loaded exact = load(config(), "cpu;other");
  ASSERT_FALSE(exact.report.ok());
  EXPECT_EQ(exact.report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(exact.report.status().message(), HasSubstr("cpu;test;mb=1"));
  EXPECT_THAT(exact.report.status().message(), HasSubstr("cpu;other"));
  TrainConfig fast = config();
  fast.numerics = planner::Numerics::kFp32;
  const Loaded fp32 = load(fast, "cpu;other");
  ASSERT_TRUE(fp32.report.ok()) << fp32.report.status().to_string();
  EXPECT_EQ(fp32.value, 10);
}

TEST_F(CheckpointTest, NewerFormatVersionIsRefusedNotPassedOver) {
  ASSERT_TRUE(save(10).ok());
  ASSERT_TRUE(save(20).ok());
  Json json = *parse_json(*read_file(file(20, "manifest.json")), "manifest");
  json["version"] = 2;
  json.erase("manifest_xxh3");
  json["manifest_xxh3"] = xxh3_hex(json.dump());
  ASSERT_TRUE(write_file_atomically(file(20, "manifest.json"), json.dump(1) + "\n").ok());
  const Loaded loaded = load();
  ASSERT_FALSE(loaded.report.ok());
  EXPECT_THAT(loaded.report.status().message(), HasSubstr("format version 2"));
}

// A table that points outside, or at tensors the files do not have, is refused even when all its
// checksums are right.
TEST_F(CheckpointTest, ConsistentLiesAreRefused) {
  ASSERT_TRUE(save(10).ok());
  const auto edit = [&](const std::function<void(Json&)>& change) {
    Json json = *parse_json(*read_file(file(10, "manifest.json")), "manifest");
    change(json);
    json.erase("manifest_xxh3");
    json["manifest_xxh3"] = xxh3_hex(json.dump());
    ASSERT_TRUE(write_file_atomically(file(10, "manifest.json"), json.dump(1) + "\n").ok());
    EXPECT_FALSE(load().report.ok()) << json.dump();
  };
  const std::string good = *read_file(file(10, "manifest.json"));
  const std::vector<std::function<void(Json&)>> changes = {
      [](Json& j) { j["layers"][0]["file"] = "../step-9/layer-0.safetensors"; },
      [](Json& j) { j["layers"][0]["layer"] = 1; },
      [](Json& j) { j["layers"].erase(3); },
      [](Json& j) { j["layers"][1]["tensors"][0]["name"] = "none"; },
      [](Json& j) {
        j["layers"][1]["tensors"][0]["shape"] = {3, 2};
      },
      [](Json& j) { j["layers"][1]["tensors"][0]["role"] = "third_moment"; },
      [](Json& j) { j["layers"] = 5; },
      [](Json& j) { j["step"] = "ten"; },
      [](Json& j) { j["plan"] = Json::object(); },
      [](Json& j) { j.erase("config"); },
  };
  for (const auto& change : changes) {
    edit(change);
    ASSERT_TRUE(write_file_atomically(file(10, "manifest.json"), good).ok());
  }
  EXPECT_EQ(load().value, 10);
}

TEST_F(CheckpointTest, PathsResolve) {
  FileSystem& files = posix_file_system();
  EXPECT_EQ(resolve_checkpoint(files, path("ckpt")).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(save(9).ok());
  ASSERT_TRUE(save(10).ok());
  EXPECT_EQ(*resolve_checkpoint(files, path("ckpt/")), path("ckpt/step-10"));
  EXPECT_EQ(*resolve_checkpoint(files, path("ckpt/step-9")), path("ckpt/step-9"));
  EXPECT_EQ(resolve_checkpoint(files, path("")).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace flextrain::trainer
