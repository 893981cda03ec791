// SPDX-License-Identifier: GPL-2.0-or-later
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "slurm_plugin/sched/site_file.h"
#include "slurm_plugin/sched/token_registry.h"
#include "tests/temp_folder.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SiteFileTest : public ::testing::Test {
 protected:
  SiteFile read(std::string_view text) {
    EXPECT_TRUE(write_file_atomically(path(), text).ok());
    return read_site_file(path());
  }
  std::string path() const { return folder_.path("flextrain.conf"); }
  TempFolder folder_;
};

TEST_F(SiteFileTest, WithoutAFileTheDefaultsHold) {
  const SiteFile file = read_site_file(path());
  EXPECT_TRUE(file.settings.on);
  EXPECT_THAT(file.error, IsEmpty());
  EXPECT_EQ(file.inner_scheduler, "sched/backfill");
}

TEST_F(SiteFileTest, AGoodFileIsTaken) {
  const SiteFile file = read("Partitions=a,b\nInnerScheduler=sched/builtin\n");
  EXPECT_THAT(file.error, IsEmpty());
  EXPECT_TRUE(file.settings.on);
  EXPECT_TRUE(elastic_partition(file.settings.config, "a"));
  EXPECT_FALSE(elastic_partition(file.settings.config, "c"));
  EXPECT_EQ(file.inner_scheduler, "sched/builtin");
}

TEST_F(SiteFileTest, EnabledNoIsOffWithoutBeingAFault) {
  const SiteFile file = read("Enabled=no\n");
  EXPECT_FALSE(file.settings.on);
  EXPECT_THAT(file.error, IsEmpty());
  EXPECT_THAT(file.settings.off_reason, HasSubstr("Enabled=no"));
}

TEST_F(SiteFileTest, ABrokenFileIsOffAndKeepsTheSitesScheduler) {
  const SiteFile file = read("InnerScheduler=sched/builtin # ours\nNoSuchKey=1\n");
  EXPECT_FALSE(file.settings.on);
  EXPECT_THAT(file.error, HasSubstr("flextrain.conf:2"));
  EXPECT_EQ(file.settings.off_reason, file.error);
  EXPECT_EQ(file.error.find('\n'), std::string::npos);
  EXPECT_EQ(file.inner_scheduler, "sched/builtin");
}

// What an earlier run left is in the database that the file names.
TEST_F(SiteFileTest, OfABrokenFileWhatCanBeUnderstoodHolds) {
  const SiteFile file = read("DatabasePath=/srv/x.db\nTickSecond=5\nEndpointPort=7001\n= =\n");
  EXPECT_FALSE(file.settings.on);
  EXPECT_FALSE(file.settings.config.enabled);
  EXPECT_EQ(file.settings.config.database_path, "/srv/x.db");
  EXPECT_EQ(file.settings.config.endpoint_port, 7001);
}

TEST_F(SiteFileTest, AnythingInTheFileIsSurvived) {
  for (const std::string& text :
       {std::string("="), std::string("\0\0\xff", 3), std::string("Enabled=perhaps"),
        std::string("just words"), std::string(100000, '#'), std::string(100000, 'x')}) {
    const SiteFile file = read(text);
    EXPECT_EQ(file.settings.on, file.error.empty());
  }
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  EXPECT_FALSE(read_site_file(path()).settings.on);
}

TEST(SiteFilePath, IsBesideSlurmConf) {
  EXPECT_EQ(site_file_path("/etc/slurm/slurm.conf"), "/etc/slurm/flextrain.conf");
  EXPECT_EQ(site_file_path(""), "/etc/slurm/flextrain.conf");
}

TEST(FindInnerScheduler, ReadsOnlyItsOwnKey) {
  EXPECT_EQ(find_inner_scheduler(""), "sched/backfill");
  EXPECT_EQ(find_inner_scheduler("x\n innerSCHEDULER = sched/site \nfoo=1"), "sched/site");
  EXPECT_EQ(find_inner_scheduler("#InnerScheduler=sched/builtin"), "sched/backfill");
  EXPECT_EQ(find_inner_scheduler("InnerScheduler="), "sched/backfill");
}

JobRecord job(uint32_t id, uint32_t array, std::string comment,
              JobState state = JobState::kRunning) {
  JobRecord record;
  record.job_id = id;
  record.array_job_id = array;
  record.admin_comment = std::move(comment);
  record.state = state;
  return record;
}

TEST(TokenRegistry, KnowsElasticJobsAsScontrolNamesThem) {
  const std::string token = "flextrain(mode=pp,max=2x)";
  ClusterView view;
  view.jobs = {job(5, 0, "x " + token),
               job(12, 10, token),
               job(13, 0, "x"),
               job(14, 0, token, JobState::kEnded),
               job(15, 0, "flextrain(companion-of=5,intent=1)"),
               job(16, 0, "flextrain(mode=")};
  TokenRegistry registry;
  EXPECT_EQ(registry.token_of("5"), "");
  registry.update(view);
  for (const char* elastic : {"5", "12", "10", "10_2", "10_[3-7]", "5+0"}) {
    EXPECT_EQ(registry.token_of(elastic), token) << elastic;
  }
  for (const char* other : {"13", "14", "15", "16", "", "x", "-5", "99999999999", "4294967294"}) {
    EXPECT_EQ(registry.token_of(other), "") << other;
  }
  registry.update({});
  EXPECT_EQ(registry.token_of("5"), "");
}

}  // namespace
}  // namespace flextrain::slurm_plugin
