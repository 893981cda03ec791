// SPDX-License-Identifier: MIT
// Runs a fuzz target without libFuzzer: over every file of the folders given and, with --mutate,
// for so long on random changes of them. A crash, an input that takes longer than 20 s or one that
// needs more than 4 GiB ends the program; the input is then in crash-TARGET, in the present folder.
//   fuzz_X [--mutate SECONDS] [--seed N] FOLDER…
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

constexpr unsigned kHangSeconds = 20;
constexpr rlim_t kMemoryBytes = rlim_t{4} << 30;
constexpr size_t kLongestInput = size_t{64} << 10;  // of a mutation

std::string current, crash_file;

// Only what is allowed in a signal handler.
void save_current() {
  const int fd = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0 && ::write(fd, current.data(), current.size()) >= 0) ::close(fd);
  static constexpr char kText[] = "the input is in the file ";
  if (::write(2, kText, sizeof kText - 1) < 0 ||
      ::write(2, crash_file.data(), crash_file.size()) < 0 || ::write(2, "\n", 1) < 0) {
    ::_exit(2);
  }
}

void on_signal(int signal) {
  save_current();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void run(std::string input) {
  current = std::move(input);
  ::alarm(kHangSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
  ::alarm(0);
}

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {
    // Words of the seeds: what the format is made of.
    for (const std::string& text : seeds_) {
      for (size_t at = 0; at < text.size();) {
        size_t end = at;
        while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) ||
                                     std::strchr("_-.+", text[end]) != nullptr)) {
          ++end;
        }
        if (end > at + 1 && end - at < 32) words_.push_back(text.substr(at, end - at));
        at = end + 1;
      }
    }
    for (const char* word : {"0", "-1", "2147483648", "9223372036854775807", "-9223372036854775808",
                             "18446744073709551615", "1e308", "null", "true", "[]", "{}", "\"\"",
                             "\n", "[[[[[[[[", "\xff", "\xc3\x28", "=", ","}) {
      words_.emplace_back(word);
    }
    words_.emplace_back(1, '\0');
  }

  std::string next() {
    std::string text = pick(seeds_);
    for (int changes = 1 + below(6); changes > 0; --changes) change(text);
    if (text.size() > kLongestInput) text.resize(kLongestInput);
    return text;
  }

 private:
  int below(size_t bound) { return static_cast<int>(random_() % std::max<size_t>(1, bound)); }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void change(std::string& text) {
    const size_t at = below(text.size() + 1), length = 1 + below(16);
    const size_t rest = text.size() - at;
    switch (below(7)) {
      case 0:
        if (rest > 0) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, pick(words_));
        break;
      case 3:  // a piece again, perhaps often
        text.insert(at, repeat(text.substr(at, length), below(8) == 0 ? 1 + below(2000) : 1));
        break;
      case 4: {  // a number or word becomes another one
        size_t end = at;
        while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end]))) ++end;
        text.replace(at, end - at, pick(words_));
        break;
      }
      case 5: {  // the end of another seed
        const std::string& other = pick(seeds_);
        text.replace(at, std::string::npos, other.substr(below(other.size() + 1)));
        break;
      }
      default:
        if (rest > 0) text[at] = static_cast<char>(below(256));
        break;
    }
  }
  static std::string repeat(const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times && all.size() < kLongestInput; ++i) all += text;
    return all;
  }

  const std::vector<std::string> seeds_;
  std::vector<std::string> words_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0;
  uint64_t seed = 1;
  std::vector<std::string> seeds;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutate" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::vector<std::filesystem::path> files;
      for (const auto& file : std::filesystem::directory_iterator(argument)) files.push_back(file);
      std::sort(files.begin(), files.end());  // one order on every file system
      for (const auto& file : files) {
        std::ifstream stream(file, std::ios::binary);
        seeds.emplace_back(std::istreambuf_iterator<char>(stream),
                           std::istreambuf_iterator<char>());
      }
    }
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no corpus\n", argv[0]);
    return 2;
  }
  crash_file = "crash-" + std::filesystem::path(argv[0]).filename().string();
#if !defined(__SANITIZE_ADDRESS__)  // which reserves terabytes
  const rlimit memory{kMemoryBytes, kMemoryBytes};
  ::setrlimit(RLIMIT_AS, &memory);
#endif
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
    ::signal(signal, &on_signal);
  }
  for (const std::string& text : seeds) run(text);
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  Mutator mutator(seeds, seed);
  int64_t mutations = 0;
  while (elapsed() < seconds) {
    run(mutator.next());
    ++mutations;
  }
  std::printf("%zu files and %lld mutations of them (seed %llu) in %.1f s\n", seeds.size(),
              static_cast<long long>(mutations), static_cast<unsigned long long>(seed), elapsed());
  return 0;
}
