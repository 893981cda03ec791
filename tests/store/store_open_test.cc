// SPDX-License-Identifier: MIT
// Opening: journal mode by file system, migrations, rights, locks, damaged files.
#include <sqlite3.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "base/file.h"
#include "store/connection.h"
#include "store/migrate.h"
#include "tests/store/store_fixture.h"

namespace flextrain::store {
namespace {

constexpr int64_t kExt4 = 0xEF53, kNfs = 0x6969;

class StoreOpenTest : public StoreFixture {
 protected:
  std::vector<std::string> files_with(const std::string& part) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      if (entry.path().string().find(part) != std::string::npos)
        found.push_back(entry.path().string());
    return found;
  }
};

TEST_F(StoreOpenTest, JournalModeFollowsTheFileSystem) {
  options_.statfs_magic = kExt4;
  EXPECT_EQ(open()->journal_mode(), "wal");
  options_.statfs_magic = kNfs;  // the folder moved to NFS
  {
    auto store = open();
    EXPECT_EQ(store->journal_mode(), "delete");
    EXPECT_TRUE(store->put_job(full_job(1)).ok());
    EXPECT_TRUE(files_with("-shm").empty());
    auto reader = Reader::open(options_.path);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ((*reader)->read([](Queries& q) { return q.jobs({}); })->size(), 1u);
  }
  options_.statfs_magic = kExt4;
  EXPECT_EQ(open()->queries().jobs({})->size(), 1u);
}

TEST_F(StoreOpenTest, KnowsNetworkFileSystems) {
  for (const int64_t magic : {0x6969LL, 0xFF534D42LL, 0xFE534D42LL, 0x0BD00BD0LL, 0x47504653LL,
                              0x65735546LL, 0x00C36400LL, 0x19830326LL})
    EXPECT_TRUE(is_network_file_system(magic)) << std::hex << magic;
  EXPECT_TRUE(is_network_file_system(static_cast<int32_t>(0xFF534D42))) << "sign-extended";
  for (const int64_t magic : {0xEF53LL, 0x58465342LL, 0x01021994LL, 0x9123683ELL, 0x2FC12FC1LL,
                              0x794C7630LL})  // ext4, xfs, tmpfs, btrfs, zfs, overlayfs
    EXPECT_FALSE(is_network_file_system(magic)) << std::hex << magic;
}

TEST_F(StoreOpenTest, FileIsPrivate) {
  auto store = open();
  ASSERT_TRUE(store->put_job(full_job(1)).ok());
  for (const std::string& path : files_with("flextrain.db")) {
    struct stat info = {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << path;
  }
}

TEST_F(StoreOpenTest, MissingFolder) {
  options_.path = folder_ + "/no/such/flextrain.db";
  const Status status = Store::open(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("no/such"), std::string::npos);
  // It once named a key that flextrain.conf does not have.
  EXPECT_NE(status.message().find("set DatabasePath"), std::string::npos);
}

TEST_F(StoreOpenTest, SecondWriterIsRefusedAndNamed) {
  auto first = open();
  const Status status = Store::open(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(fmt::format("pid {}", ::getpid())), std::string::npos)
      << status.message();
  first.reset();
  EXPECT_NE(open(), nullptr);
}

TEST_F(StoreOpenTest, LockOfAnotherProcess) {
  ASSERT_NE(open(), nullptr);
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(options_.path.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE;", nullptr, nullptr,
                         nullptr),
            SQLITE_OK);
  const Status status = Store::open(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
  EXPECT_NE(status.message().find("locked by another process"), std::string::npos);
  EXPECT_TRUE(files_with("corrupt").empty()) << "locked is not damaged";
  sqlite3_close(other);
  EXPECT_NE(open(), nullptr);
}

// Two clusters with one DatabasePath, one after the other: the lock alone does not keep them apart.
TEST_F(StoreOpenTest, ADatabaseIsOneClusters) {
  options_.cluster = "c1";
  auto store = open();
  ASSERT_TRUE(store->put_job(full_job(1)).ok());
  store.reset();
  options_.cluster = "007";
  const Status status = Store::open(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
  EXPECT_NE(status.message().find("of cluster 'c1' and this is '007'"), std::string::npos)
      << status.message();
  EXPECT_TRUE(files_with("corrupt").empty());
  options_.cluster = "c1";
  store = open();
  EXPECT_EQ(store->queries().jobs({})->size(), 1u);
  // Its own is taken away and another's lies there.
  const std::string own = options_.path;
  options_.path = folder_ + "/other.db";
  options_.cluster = "007";
  ASSERT_NE(open(), nullptr);
  ASSERT_NE(open(), nullptr) << "its own";
  ASSERT_EQ(std::rename(options_.path.c_str(), own.c_str()), 0);
  EXPECT_EQ(store->check_file().code(), StatusCode::kDataLoss);
  EXPECT_EQ(store->reopen().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store->fault().code(), StatusCode::kFailedPrecondition);
  store.reset();
  options_.path = own;
  EXPECT_NE(open(), nullptr) << "untouched";
}

TEST_F(StoreOpenTest, NotADatabaseIsMovedAside) {
  ASSERT_TRUE(write_file_atomically(options_.path, std::string(5000, 'x')).ok());
  auto store = open();
  ASSERT_NE(store, nullptr);
  EXPECT_NE(store->open_note().find("damaged"), std::string::npos) << store->open_note();
  ASSERT_EQ(files_with("corrupt").size(), 1u);
  EXPECT_NE(store->open_note().find(files_with("corrupt")[0]), std::string::npos);
  EXPECT_EQ(read_file(files_with("corrupt")[0])->size(), 5000u) << "kept for a look";
  EXPECT_TRUE(store->put_job(full_job(1)).ok());
  store.reset();
  EXPECT_EQ(open()->open_note(), "");
}

TEST_F(StoreOpenTest, OverwrittenPagesAreFound) {
  {
    auto store = open();
    for (uint32_t i = 1; i < 200; ++i) ASSERT_TRUE(store->put_job(full_job(i)).ok());
  }
  {
    std::fstream file(options_.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 * 3);
    file << std::string(4096 * 20, '\x5a');
  }
  auto store = open();
  ASSERT_NE(store, nullptr);
  EXPECT_NE(store->open_note(), "");
  EXPECT_TRUE(store->queries().jobs({})->empty());
  EXPECT_EQ(files_with("corrupt").size(), 1u);
}

TEST_F(StoreOpenTest, TruncatedFileIsFound) {
  {
    auto store = open();
    for (uint32_t i = 1; i < 200; ++i) ASSERT_TRUE(store->put_job(full_job(i)).ok());
  }
  std::filesystem::resize_file(options_.path, std::filesystem::file_size(options_.path) / 2 + 100);
  auto store = open();
  ASSERT_NE(store, nullptr);
  EXPECT_NE(store->open_note(), "");
}

TEST_F(StoreOpenTest, EmptyFileIsANewDatabase) {
  ASSERT_TRUE(write_file_atomically(options_.path, "").ok());
  EXPECT_EQ(open()->open_note(), "");
}

TEST_F(StoreOpenTest, NewerSchemaIsRefusedAndKept) {
  ASSERT_TRUE(open()->put_job(full_job(1)).ok());
  Connection connection;
  ASSERT_TRUE(connection.open(options_.path, 100).ok());
  ASSERT_TRUE(connection.execute("PRAGMA user_version=99").ok());
  connection.close();
  const Status status = Store::open(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("99"), std::string::npos);
  EXPECT_TRUE(files_with("corrupt").empty());
}

TEST_F(StoreOpenTest, MigrationsApplyOnceInOrderAndWhole) {
  ASSERT_TRUE(write_file_atomically(options_.path, "").ok());
  Connection connection;
  ASSERT_TRUE(connection.open(options_.path, 100).ok());
  std::vector<Migration> steps = {
      {"001_a.sql", "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1);"}};
  ASSERT_TRUE(migrate(connection, steps).ok());
  steps.push_back({"002_b.sql", "INSERT INTO a VALUES (2); INSERT INTO nowhere VALUES (1);"});
  const Status status = migrate(connection, steps);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("002_b.sql"), std::string::npos);
  EXPECT_EQ(*connection.integer("SELECT count(*) FROM a"), 1) << "rolled back";
  EXPECT_EQ(*connection.integer("PRAGMA user_version"), 1);
  steps[1].sql = "INSERT INTO a VALUES (2);";
  ASSERT_TRUE(migrate(connection, steps).ok());
  ASSERT_TRUE(migrate(connection, steps).ok());
  EXPECT_EQ(*connection.integer("SELECT sum(x) FROM a"), 3);
}

TEST_F(StoreOpenTest, SchemaVersionIsTheNumberOfMigrations) {
  EXPECT_EQ(open()->queries().schema_version(), static_cast<int>(builtin_migrations().size()));
}

}  // namespace
}  // namespace flextrain::store
