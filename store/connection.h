// SPDX-License-Identifier: MIT
// One SQLite connection and its statements, without exceptions. Private to store/. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace flextrain::store {

// Bytes for a BLOB column, apart from text.
struct Blob {
  std::string bytes;
};

// A prepared statement. Binding and reading go through the columns in order; the first error sticks
// and is returned by run(), next() or finish().
class Statement {
 public:
  Statement(sqlite3* database, const std::string& path, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  template <typename... Values>
  Statement& bind(const Values&... values) {
    (bind_one(values), ...);
    return *this;
  }
  Status run();         // steps to the end; for statements without rows
  Result<bool> next();  // true: a row is there
  template <typename... Values>
  Statement& read(Values&... values) {  // of the present row, from the next column on
    (read_one(values), ...);
    return *this;
  }
  Status finish() const { return error_; }  // what went wrong while binding or reading

 private:
  void bind_one(int64_t value);
  void bind_one(uint32_t value) { bind_one(static_cast<int64_t>(value)); }
  void bind_one(int value) { bind_one(static_cast<int64_t>(value)); }
  void bind_one(bool value) { bind_one(static_cast<int64_t>(value)); }
  void bind_one(double value);  // not a number is stored as NULL, read back as NaN
  void bind_one(const std::string& value);
  void bind_one(const Blob& value);
  void bind_one(const Json& value);  // null as ''
  void read_one(int64_t& value);
  void read_one(uint32_t& value);
  void read_one(int& value);
  void read_one(bool& value);
  void read_one(double& value);
  void read_one(std::string& value);
  void read_one(Blob& value);
  void read_one(Json& value);
  void note(int code);

  sqlite3* database_;
  const std::string& path_;
  sqlite3_stmt* statement_ = nullptr;
  int bind_index_ = 0, read_index_ = 0;
  Status error_;
};

class Connection {
 public:
  Connection() = default;
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The file must exist.
  Status open(const std::string& path, int busy_timeout_ms);
  void close();  // every later call fails
  void set_busy_timeout(int milliseconds);
  const std::string& path() const { return path_; }
  Status execute(const std::string& sql);  // one or more statements, no parameters
  Statement prepare(std::string_view sql) { return Statement(database_, path_, sql); }
  Result<int64_t> integer(std::string_view sql);   // the first column of the first row
  Result<std::string> text(std::string_view sql);  // likewise
  std::string first_bytes(size_t count) const;  // of the file, past every cache; shorter on error
  int64_t last_insert_id() const;
  int64_t changes() const;  // rows touched by the last INSERT, UPDATE or DELETE

 private:
  sqlite3* database_ = nullptr;
  std::string path_;
};

// A SQLite result code as a Status that names the database.
Status sqlite_status(int code, std::string_view path, std::string_view detail);

}  // namespace flextrain::store
