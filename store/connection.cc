// SPDX-License-Identifier: MIT
#include "store/connection.h"

#include <sqlite3.h>

#include <cmath>
#include <limits>

namespace flextrain::store {

Status sqlite_status(int code, std::string_view path, std::string_view detail) {
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return {};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return unavailable(
          "database {} is locked by another process ({}); end what holds it (`fuser {}` names it)",
          path, detail, path);
    case SQLITE_FULL:
      return resource_exhausted(
          "database {}: no space left ({}); free space or lower RetentionDays", path, detail);
    case SQLITE_NOMEM:
      return resource_exhausted("database {}: out of memory", path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return data_loss("database {} is damaged: {}", path, detail);
    case SQLITE_CONSTRAINT:
      return already_exists("database {}: {}", path, detail);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return permission_denied("database {} cannot be written: {}", path, detail);
    case SQLITE_CANTOPEN:
      return unavailable("database {} cannot be opened: {}", path, detail);
    case SQLITE_IOERR:
      return unavailable("database {}: input/output error ({})", path, detail);
    default:
      return internal_error("database {}: {} (SQLite code {})", path, detail, code);
  }
}

Statement::Statement(sqlite3* database, const std::string& path, std::string_view sql)
    : database_(database), path_(path) {
  if (database_ == nullptr) {
    error_ = unavailable("database {} is not open", path_);
    return;
  }
  note(sqlite3_prepare_v2(database_, sql.data(), static_cast<int>(sql.size()), &statement_,
                          nullptr));
}

Statement::~Statement() { sqlite3_finalize(statement_); }

void Statement::note(int code) {
  if (code != SQLITE_OK && error_.ok())
    error_ = sqlite_status(code, path_, sqlite3_errmsg(database_));
}

void Statement::bind_one(int64_t value) {
  if (error_.ok()) note(sqlite3_bind_int64(statement_, ++bind_index_, value));
}
void Statement::bind_one(double value) {
  if (!error_.ok()) return;
  ++bind_index_;
  note(std::isfinite(value) ? sqlite3_bind_double(statement_, bind_index_, value)
                            : sqlite3_bind_null(statement_, bind_index_));
}
void Statement::bind_one(const std::string& value) {
  if (error_.ok())
    note(sqlite3_bind_text64(statement_, ++bind_index_, value.data(), value.size(),
                             SQLITE_TRANSIENT, SQLITE_UTF8));
}
void Statement::bind_one(const Blob& value) {
  if (error_.ok())
    note(sqlite3_bind_blob64(statement_, ++bind_index_, value.bytes.data(), value.bytes.size(),
                             SQLITE_TRANSIENT));
}
void Statement::bind_one(const Json& value) {
  bind_one(value.is_null() ? std::string()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void Statement::read_one(int64_t& value) {
  value = sqlite3_column_int64(statement_, read_index_++);
}
void Statement::read_one(uint32_t& value) {
  value = static_cast<uint32_t>(sqlite3_column_int64(statement_, read_index_++));
}
void Statement::read_one(int& value) {
  value = static_cast<int>(sqlite3_column_int64(statement_, read_index_++));
}
void Statement::read_one(bool& value) {
  value = sqlite3_column_int64(statement_, read_index_++) != 0;
}
void Statement::read_one(double& value) {
  const bool null = sqlite3_column_type(statement_, read_index_) == SQLITE_NULL;
  value = null ? std::numeric_limits<double>::quiet_NaN()
               : sqlite3_column_double(statement_, read_index_);
  ++read_index_;
}
void Statement::read_one(std::string& value) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, read_index_));
  const int bytes = sqlite3_column_bytes(statement_, read_index_++);
  value.assign(text != nullptr ? text : "", text != nullptr ? static_cast<size_t>(bytes) : 0);
}
void Statement::read_one(Blob& value) {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, read_index_));
  const int bytes = sqlite3_column_bytes(statement_, read_index_++);
  value.bytes.assign(data != nullptr ? data : "", data != nullptr ? static_cast<size_t>(bytes) : 0);
}
void Statement::read_one(Json& value) {
  std::string text;
  read_one(text);
  value = nullptr;
  if (text.empty()) return;
  Result<Json> json = parse_json(text, "a JSON column");
  if (json.ok()) {
    value = std::move(json).value();
  } else if (error_.ok()) {
    error_ = json.status().with_context("database " + path_);
  }
}

Result<bool> Statement::next() {
  RETURN_IF_ERROR(error_);
  read_index_ = 0;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  note(code);
  return error_;
}

Status Statement::run() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, next());
    if (!row) return {};
  }
}

Connection::~Connection() { close(); }

void Connection::close() {
  if (database_ != nullptr) sqlite3_close_v2(database_);
  database_ = nullptr;
}

Status Connection::open(const std::string& path, int busy_timeout_ms) {
  close();
  path_ = path;
  const int code =
      sqlite3_open_v2(path.c_str(), &database_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (code != SQLITE_OK) {
    const Status status = sqlite_status(
        code, path, database_ != nullptr ? sqlite3_errmsg(database_) : sqlite3_errstr(code));
    close();
    return status;
  }
  sqlite3_busy_timeout(database_, busy_timeout_ms);
  return {};
}

void Connection::set_busy_timeout(int milliseconds) {
  if (database_ != nullptr) sqlite3_busy_timeout(database_, milliseconds);
}

Status Connection::execute(const std::string& sql) {
  if (database_ == nullptr) return unavailable("database {} is not open", path_);
  const int code = sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
  return sqlite_status(code, path_, sqlite3_errmsg(database_));
}

Result<int64_t> Connection::integer(std::string_view sql) {
  Statement statement = prepare(sql);
  ASSIGN_OR_RETURN(const bool row, statement.next());
  if (!row) return not_found("database {}: no row for: {}", path_, sql);
  int64_t value = 0;
  statement.read(value);
  return value;
}

Result<std::string> Connection::text(std::string_view sql) {
  Statement statement = prepare(sql);
  ASSIGN_OR_RETURN(const bool row, statement.next());
  if (!row) return not_found("database {}: no row for: {}", path_, sql);
  std::string value;
  statement.read(value);
  return value;
}

std::string Connection::first_bytes(size_t count) const {
  sqlite3_file* file = nullptr;
  if (database_ == nullptr ||
      sqlite3_file_control(database_, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
      file == nullptr || file->pMethods == nullptr) {
    return "";
  }
  std::string bytes(count, '\0');
  const int code = file->pMethods->xRead(file, bytes.data(), static_cast<int>(count), 0);
  return code == SQLITE_OK ? bytes : "";
}

int64_t Connection::last_insert_id() const {
  return database_ == nullptr ? 0 : sqlite3_last_insert_rowid(database_);
}
int64_t Connection::changes() const {
  return database_ == nullptr ? 0 : sqlite3_changes(database_);
}

}  // namespace flextrain::store
