// SPDX-License-Identifier: MIT
// A trainer that keeps docs/agent-contract.md and computes nothing. State: ./checkpoint holds the
// last saved step. Knobs are files in the working folder, so that tests can turn them at any time:
//   steps N            total steps (default 1000000)
//   fail_at_ranks N    exit 9 before the first step when launched with N ranks
//   leave_at_ranks N   every rank exits 0 at once when launched with N ranks
//   refuse_at_ranks N  the same with 78
//   crash              exit 9 at the next step (the file is removed first)
//   slow_at_ranks N    wait before the first step when launched with N ranks, until signalled
//   no_phases          write progress only
//   ignore_signals     never checkpoint on a signal
//   save_fails TEXT    saving on a signal fails for this reason
//   save_seconds N     a save takes so long
//   save_now           a save that nobody asked for, as long as the file is there
//   hang_at N          stop dead at this step
//   hang_on_signal     stop dead instead of saving
//   never_ends         stop dead after saving
//   clock_shift N      the trainer's clock is off by so many seconds
//   pace SECONDS       a step takes so long (0.02)
//   scale_table.json   the table that it offers instead of a made-up one
// No shell script: bash 5.2 that runs a trap while it reads a $(…) loses the place and ends with a
// syntax error, in one save of some hundred.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

extern char** environ;

namespace {

namespace fs = std::filesystem;

constexpr int kComplete = 0, kCrashed = 9, kRefused = 78, kCheckpointed = 85;

volatile std::sig_atomic_t stop = 0;

void on_signal(int) {
  if (::access("ignore_signals", F_OK) != 0) stop = 1;
}

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::string contents(const fs::path& path, const std::string& otherwise) {
  std::ifstream file(path);
  if (!file) return otherwise;
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

double number(const char* knob, double otherwise) {
  const std::string text = contents(knob, "");
  return text.empty() ? otherwise : std::strtod(text.c_str(), nullptr);
}

void put(const fs::path& path, const std::string& text) {  // atomically
  const fs::path temporary = path.parent_path() / ("." + path.filename().string() + ".tmp");
  std::ofstream(temporary) << text << '\n';
  std::error_code error;
  fs::rename(temporary, path, error);
}

void wait(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// For good: mpirun passes on the SIGCONT that comes with the agent's signals.
[[noreturn]] void stop_dead() {
  for (;;) ::raise(SIGSTOP);
}

struct Trainer {
  int rank = std::atoi(environment("OMPI_COMM_WORLD_RANK", "0").c_str());
  int size = std::atoi(environment("OMPI_COMM_WORLD_SIZE", "1").c_str());
  fs::path dir = environment("FLEXTRAIN_CONTROL_DIR", ".");
  double pace = number("pace", 0.02);
  double shift = 0;
  long step = 0, total = 0;
  std::string plan = "none";

  std::string saved() const { return fmt::format("saved.{}", size); }

  std::string now() const {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return fmt::format("{:.6f}", std::chrono::duration<double>(since).count() + shift);
  }
  void phase(const std::string& name, const std::string& reason = "") const {
    if (fs::exists("no_phases")) return;
    std::ofstream(dir / "phases.jsonl", std::ios::app)
        << fmt::format("{{\"phase\":\"{}\",\"time\":{},\"reason\":\"{}\"}}\n", name, now(), reason);
  }
  void progress() const {
    put(dir / "progress.json",
        fmt::format("{{\"step\":{0},\"total_steps\":{1},\"consumed_samples\":{0},\"loss\":1.5,"
                    "\"tokens_per_second\":100,\"step_seconds\":{2},\"gpus\":{3},"
                    "\"plan_id\":\"{4}\",\"time\":{5}}}",
                    step, total, pace, size, plan, now()));
  }

  // A rank of this launch that can be signalled, as after MPI_Init.
  fs::path here(int of) const {
    return dir / fmt::format("here.{}.{}", environment("PMIX_NAMESPACE", "none"), of);
  }

  // The ranks but the first only live and die.
  int accompany() const {
    std::ofstream{here(rank)};
    // The folder goes with its test; nobody is left to end a rank that outlives it.
    while (fs::exists(dir) && !fs::exists("complete") && !(stop != 0 && fs::exists(saved()))) {
      wait(pace);
    }
    return fs::exists("complete") ? kComplete : kCheckpointed;
  }

  void begin() {
    for (int other = 1; other < size; ++other) {
      while (fs::exists(dir) && !fs::exists(here(other))) wait(0.002);
    }
    int slurm = 0;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (std::string(*entry).starts_with("SLURM_")) ++slurm;
    }
    std::ofstream("launches", std::ios::app) << ::getpid() << ' ' << size << ' ' << slurm << '\n';
    total = static_cast<long>(number("steps", 1000000));
    fs::remove(saved());
    phase("init");
    step = static_cast<long>(number("checkpoint", 0));
    const std::string text = contents(dir / "plan.json", "");
    if (const size_t key = text.find("\"id\":"); key != std::string::npos) {
      const size_t open = text.find('"', key + 5) + 1;
      plan = text.substr(open, text.find('"', open) - open);
    }
    put(dir / "fingerprint", "fake-fingerprint");
    phase("load");
  }

  // True: it has saved and is to leave.
  bool save() {
    if (fs::exists("hang_on_signal")) stop_dead();
    phase("saving");
    if (fs::exists("save_fails")) {
      phase("save_failed", contents("save_fails", ""));
      stop = 0;
      return false;
    }
    wait(number("save_seconds", 0));
    put("checkpoint", std::to_string(step));
    phase("save");
    phase("stop");
    if (fs::exists("never_ends")) stop_dead();
    std::ofstream{saved()};
    return true;
  }

  int train() {
    begin();
    if (number("fail_at_ranks", 0) == size) return kCrashed;
    if (number("refuse_at_ranks", 0) == size) return kRefused;
    while (number("slow_at_ranks", 0) == size && stop == 0) wait(0.02);
    bool first = true;
    while (step < total && fs::exists(dir)) {
      wait(pace);
      ++step;
      if (std::exchange(first, false)) phase("first_step");
      shift = number("clock_shift", 0);
      progress();
      if (number("hang_at", -1) == static_cast<double>(step)) stop_dead();
      if (fs::exists("save_now")) {
        phase("saving");
        while (fs::exists("save_now") && fs::exists(dir)) wait(0.02);
        put("checkpoint", std::to_string(step));
        phase("save");
      }
      if (fs::remove("crash")) return kCrashed;
      if (fs::exists(dir / "request.json") && !fs::exists(dir / "scale_table.json")) {
        put(dir / "profile.json", R"({"steps":3})");
        put(dir / "scale_table.json",
            contents("scale_table.json",
                     R"({"version":1,"entries":[{"kept":true,"shape":{"gpus":2},)"
                     R"("plan":{"id":"table2"}}]})"));
      }
      if (stop != 0 && save()) return kCheckpointed;
    }
    put("checkpoint", std::to_string(step));
    progress();
    std::ofstream("complete");
    return kComplete;
  }
};

}  // namespace

int main() {
  for (const int signal : {SIGUSR1, SIGTERM}) std::signal(signal, on_signal);
  Trainer trainer;
  if (number("leave_at_ranks", 0) == trainer.size) return kComplete;
  std::ofstream(fmt::format("device.{}", trainer.rank))
      << environment("CUDA_VISIBLE_DEVICES", "none") << ' ' << environment("FAKE_SRUN_JOB", "base")
      << '\n';
  return trainer.rank != 0 ? trainer.accompany() : trainer.train();
}
