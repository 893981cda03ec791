// SPDX-License-Identifier: MIT
#include "simulator/read_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>

#include "base/text.h"

namespace flextrain::simulator {
namespace {

constexpr double kDay = 86400, kYear = 365 * kDay;
// A replay looks once a simulated minute: a slip of the pen must not make it look for centuries.
constexpr double kLongestJob = 10 * kYear, kLongestTrace = 20 * kYear;
constexpr double kHighestId = 4294967295;  // Slurm's job ids have 32 bits
constexpr double kLatest = 100 * kYear;    // arrival, seconds since 1970

// Uniform in [0, 1), a function of seed and id alone (splitmix64).
double draw(uint64_t seed, uint64_t id) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ULL + id;
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

// "2017-10-09 07:01:55" or with a T, as if it were UTC, so that times of day stay those of the
// site.
std::optional<double> time_stamp(std::string_view text) {
  std::tm tm{};
  if (text.size() < 19) return std::nullopt;
  const auto field = [&](size_t at, size_t length, int& value) {
    const char* begin = text.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + length, value);
    return error == std::errc() && end == begin + length;
  };
  if (!field(0, 4, tm.tm_year) || !field(5, 2, tm.tm_mon) || !field(8, 2, tm.tm_mday) ||
      !field(11, 2, tm.tm_hour) || !field(14, 2, tm.tm_min) || !field(17, 2, tm.tm_sec))
    return std::nullopt;
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  return static_cast<double>(timegm(&tm));
}

struct Names {
  std::map<std::string, int, std::less<>> numbers;
  std::vector<std::string> list;

  int number(std::string_view name) {
    const auto found = numbers.find(name);
    if (found != numbers.end()) return found->second;
    const int next = static_cast<int>(list.size());
    numbers.emplace(name, next);
    list.emplace_back(name);
    return next;
  }
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& name, const ReadOptions& options)
      : text_(text), name_(name), options_(options) {}

  Result<ReadTrace> read() {
    static constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of spreadsheets
    if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) at_ = kByteOrderMark.size();
    std::string_view header;
    if (!next_line(header)) return invalid_argument("{}: the file is empty", name_);
    separator_ = header.find('|') != std::string_view::npos ? '|' : ',';
    const std::vector<std::string_view> names = fields(header);
    for (size_t i = 0; i < names.size(); ++i)
      if (!columns_.emplace(to_lower(trim(names[i])), i).second)
        return invalid_argument("{}:1: the column {} is there twice", name_, trim(names[i]));
    Status (Reader::*row)(const std::vector<std::string_view>&) = nullptr;
    if (has({"id", "arrival_s", "duration_s", "gpus", "limit_s", "u"})) {
      row = &Reader::seconds_row;
    } else if (has({"timestamp", "duration", "num_gpus"})) {
      row = &Reader::philly_row;
    } else if (columns_.count("jobid") != 0) {
      for (const char* column : {"submit", "start", "end", "timelimitraw", "alloctres"})
        if (columns_.count(column) == 0)
          return invalid_argument("{}:1: the column {} is missing; make the file with: {}", name_,
                                  column, kSacctCommand);
      row = &Reader::sacct_row;
    } else {
      return invalid_argument(
          "{}:1: not a trace: the first line must name id,arrival_s,duration_s,gpus,limit_s,u, or "
          "timestamp,duration,num_gpus, or sacct's columns (make it with: {})",
          name_, kSacctCommand);
    }
    std::string_view line;
    while (next_line(line)) {
      if (trim(line).empty()) continue;
      ++result_.lines;
      const std::vector<std::string_view> values = fields(line);
      if (values.size() != columns_.size())  // more: a separator within a name moved the others
        return invalid_argument("{}:{}: {} fields, the first line names {}", name_, line_,
                                values.size(), columns_.size());
      if (Status status = (this->*row)(values); !status.ok())
        return status.with_context(fmt::format("{}:{}", name_, line_));
    }
    return finish();
  }

 private:
  bool next_line(std::string_view& line) {
    if (at_ >= text_.size()) return false;
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    line = text_.substr(at_, end - at_);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    at_ = end + 1;
    ++line_;
    return true;
  }

  std::vector<std::string_view> fields(std::string_view line) const {
    std::vector<std::string_view> list;
    for (size_t begin = 0;;) {
      const size_t end = line.find(separator_, begin);
      list.push_back(line.substr(begin, end == std::string_view::npos ? end : end - begin));
      if (end == std::string_view::npos) return list;
      begin = end + 1;
    }
  }

  bool has(std::initializer_list<const char*> names) const {
    return std::all_of(names.begin(), names.end(),
                       [&](const char* name) { return columns_.count(name) != 0; });
  }

  std::string_view value(const std::vector<std::string_view>& row, const char* column) const {
    const auto found = columns_.find(column);
    return found == columns_.end() ? std::string_view() : trim(row[found->second]);
  }

  Result<double> positive(const std::vector<std::string_view>& row, const char* column,
                          double high = 1e18) const {
    const std::optional<double> parsed = number(value(row, column));
    if (!parsed || *parsed < 0)
      return invalid_argument("{}='{}' is no number of at least 0", column, value(row, column));
    if (*parsed > high)
      return invalid_argument("{}='{}' is more than {:.0f}", column, value(row, column), high);
    return *parsed;
  }

  Status seconds_row(const std::vector<std::string_view>& row) {
    TraceJob job;
    ASSIGN_OR_RETURN(const double id, positive(row, "id", kHighestId));
    ASSIGN_OR_RETURN(job.arrival, positive(row, "arrival_s", kLatest));
    ASSIGN_OR_RETURN(job.duration, positive(row, "duration_s", kLongestJob));
    ASSIGN_OR_RETURN(const double gpus, positive(row, "gpus"));
    ASSIGN_OR_RETURN(job.limit, positive(row, "limit_s"));
    ASSIGN_OR_RETURN(job.draw, positive(row, "u"));
    job.user = users_.number(value(row, "user"));
    job.account = accounts_.number(value(row, "account"));
    job.id = static_cast<int64_t>(id);
    job.gpus = static_cast<int>(std::min(gpus, 1e9));
    keep(job);
    return {};
  }

  Status philly_row(const std::vector<std::string_view>& row) {
    TraceJob job;
    const auto arrival = time_stamp(value(row, "timestamp"));
    if (!arrival || *arrival < 0 || *arrival > kLatest)
      return invalid_argument("timestamp='{}' is not YYYY-MM-DD HH:MM:SS", value(row, "timestamp"));
    ASSIGN_OR_RETURN(job.duration, positive(row, "duration", kLongestJob));
    ASSIGN_OR_RETURN(const double gpus, positive(row, "num_gpus"));
    job.arrival = *arrival;
    job.gpus = static_cast<int>(std::min(gpus, 1e9));
    job.id = result_.lines - 1;
    job.limit = job.duration * options_.limit_factor;
    job.draw = draw(options_.seed, static_cast<uint64_t>(job.id));
    job.user = users_.number(value(row, "user"));
    job.account = accounts_.number(value(row, "cluster"));  // a tenant
    keep(job);
    return {};
  }

  Status sacct_row(const std::vector<std::string_view>& row) {
    TraceJob job;
    std::string_view digits = value(row, "jobid");
    digits = digits.substr(0, digits.find_first_not_of("0123456789"));
    const std::optional<double> id = number(digits);
    if (!id || *id > kHighestId)
      return invalid_argument("JobID='{}' is no job id", value(row, "jobid"));
    const auto submit = time_stamp(value(row, "submit"));
    if (!submit)
      return invalid_argument("Submit='{}' is not YYYY-MM-DDTHH:MM:SS", value(row, "submit"));
    const auto start = time_stamp(value(row, "start")), end = time_stamp(value(row, "end"));
    job.gpus = gpus_in_tres(value(row, "alloctres"));
    if (!start || !end || *end <= *start) {  // "Unknown", "None": never ran, or runs still
      ++result_.left_out;
      return {};
    }
    if (*submit < 0 || *end > kLatest || *end - *start > kLongestJob)
      return invalid_argument(
          "Submit='{}', Start='{}', End='{}': not within 1970 to 2069, or a run of over {:.0f} "
          "years",
          value(row, "submit"), value(row, "start"), value(row, "end"), kLongestJob / kYear);
    job.id = static_cast<int64_t>(*id);
    job.arrival = *submit;
    job.duration = *end - *start;
    const std::optional<double> minutes = number(value(row, "timelimitraw"));
    // Slurm lets a job run a little over its limit before it ends it.
    job.limit =
        minutes ? std::max(*minutes * 60, job.duration) : job.duration * options_.limit_factor;
    job.draw = draw(options_.seed, static_cast<uint64_t>(job.id));
    job.user = users_.number(value(row, "user"));
    job.account = accounts_.number(value(row, "account"));
    keep(job);
    return {};
  }

  void keep(const TraceJob& job) {
    if (job.gpus > 0) {
      result_.trace.jobs.push_back(job);
    } else {
      ++result_.left_out;
    }
  }

  Result<ReadTrace> finish() {
    auto& jobs = result_.trace.jobs;
    if (jobs.empty()) return invalid_argument("{}: no job with GPUs that ran and ended", name_);
    result_.trace.name = name_;
    result_.trace.users = users_.list;
    result_.trace.accounts = accounts_.list;
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const TraceJob& a, const TraceJob& b) { return a.arrival < b.arrival; });
    if (const double span = jobs.back().arrival - jobs.front().arrival; span > kLongestTrace)
      return invalid_argument("{}: its jobs arrive over {:.0f} years, at most {:.0f} are replayed",
                              name_, span / kYear, kLongestTrace / kYear);
    if (jobs.front().arrival > kYear) {  // unix times: from the midnight before the first
      result_.trace.epoch = std::floor(jobs.front().arrival / kDay) * kDay;
      for (TraceJob& job : jobs) job.arrival -= result_.trace.epoch;
    }
    return std::move(result_);
  }

  const std::string_view text_;
  const std::string& name_;
  const ReadOptions options_;
  size_t at_ = 0;
  int64_t line_ = 0;
  char separator_ = ',';
  std::map<std::string, size_t> columns_;
  Names users_, accounts_;
  ReadTrace result_;
};

}  // namespace

void redraw(Trace& trace, uint64_t seed) {
  for (TraceJob& job : trace.jobs) job.draw = draw(seed, static_cast<uint64_t>(job.id));
}

int gpus_in_tres(std::string_view text) {
  // The total is "gres/gpu=N"; typed counts ("gres/gpu:a100=N") add up to it where it is missing.
  double total = 0, typed = 0;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = trim(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) continue;
    const std::optional<double> count = number(item.substr(equals + 1));
    if (!count) continue;
    if (item.substr(0, equals) == "gres/gpu") total = *count;
    if (item.substr(0, 9) == "gres/gpu:") typed += *count;
  }
  return static_cast<int>(std::clamp(total > 0 ? total : typed, 0.0, 1e9));
}

Result<ReadTrace> read_trace(std::string_view text, const std::string& name,
                             const ReadOptions& options) {
  return Reader(text, name, options).read();
}

}  // namespace flextrain::simulator
