// SPDX-License-Identifier: GPL-2.0-or-later
// Loads the real spank_flextrain.so; this program plays the command that Slurm would load it into.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include <slurm/spank.h>
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct Host {  // what the fake command saw
  spank_context_t context = S_CTX_ALLOCATOR;
  std::map<std::string, std::string> control;
  std::vector<spank_option> options;
  std::vector<std::string> errors;
} host;

}  // namespace

extern "C" {
spank_context_t spank_context() { return host.context; }
const char* spank_strerror(spank_err_t) { return "error"; }
spank_err_t spank_option_register(spank_t, spank_option* option) {
  host.options.push_back(*option);
  return static_cast<spank_err_t>(ESPANK_SUCCESS);
}
spank_err_t spank_job_control_setenv(spank_t, const char* name, const char* value, int) {
  host.control[name] = value;
  return static_cast<spank_err_t>(ESPANK_SUCCESS);
}
spank_err_t spank_job_control_unsetenv(spank_t, const char* name) {
  host.control.erase(name);
  return static_cast<spank_err_t>(ESPANK_SUCCESS);
}
void slurm_error(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  host.errors.emplace_back(line);
}
}

namespace {

class Spank : public ::testing::Test {
 protected:
  void SetUp() override {
    host = Host();
    unsetenv("SLURM_JOB_ID");
    library_ = dlopen(FLEXTRAIN_SPANK_SO, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  void TearDown() override {
    if (library_) dlclose(library_);
  }
  int call(const char* name, std::vector<std::string> arguments = {}) {
    auto* function = reinterpret_cast<int (*)(spank_t, int, char**)>(dlsym(library_, name));
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return function(nullptr, static_cast<int>(argv.size()), argv.data());
  }
  // As the command would on meeting --<name>[=value].
  int give(const std::string& name, const char* value, int remote = 0) {
    for (const spank_option& option : host.options) {
      if (name == option.name) return option.cb(option.val, value, remote);
    }
    ADD_FAILURE() << "no option " << name;
    return -1;
  }
  void* library_ = nullptr;
};

TEST_F(Spank, ExportsWhatSlurmLooksFor) {
  EXPECT_STREQ(static_cast<const char*>(dlsym(library_, "plugin_name")), "flextrain");
  EXPECT_STREQ(static_cast<const char*>(dlsym(library_, "plugin_type")), "spank");
  ASSERT_NE(dlsym(library_, "plugin_version"), nullptr);
  EXPECT_EQ(*static_cast<const unsigned*>(dlsym(library_, "plugin_version")),
            static_cast<unsigned>(SLURM_VERSION_NUMBER));
  EXPECT_NE(dlsym(library_, "spank_plugin_version"), nullptr);
}

TEST_F(Spank, HandsNothingOverUnasked) {
  ASSERT_EQ(call("slurm_spank_init"), 0);
  ASSERT_EQ(call("slurm_spank_init_post_opt"), 0);
  EXPECT_TRUE(host.control.empty());
}

TEST_F(Spank, TheArgumentOfElasticIsOptional) {
  ASSERT_EQ(call("slurm_spank_init"), 0);
  ASSERT_EQ(host.options.size(), 2u);
  EXPECT_EQ(host.options[0].has_arg, 2);
  EXPECT_EQ(host.options[1].has_arg, 1);
  EXPECT_EQ(give("elastic", nullptr), 0);
  ASSERT_EQ(call("slurm_spank_init_post_opt"), 0);
  EXPECT_THAT(host.control, ElementsAre(Pair("FLEXTRAIN_ELASTIC", "dp+pp")));
}

// sbatch re-reads a flag from its own environment for each further component of a het job.
TEST_F(Spank, AnAbsentArgumentMayArriveAsNull) {
  ASSERT_EQ(call("slurm_spank_init"), 0);
  EXPECT_EQ(give("elastic", "(null)"), 0);
  ASSERT_EQ(call("slurm_spank_init_post_opt"), 0);
  EXPECT_THAT(host.control, ElementsAre(Pair("FLEXTRAIN_ELASTIC", "dp+pp")));
}

TEST_F(Spank, TheLastWordCounts) {
  ASSERT_EQ(call("slurm_spank_init"), 0);
  EXPECT_EQ(give("elastic", "dp+pp"), 0);
  EXPECT_EQ(give("elastic-max", "16"), 0);
  EXPECT_EQ(give("elastic", "pp"), 0);
  EXPECT_EQ(give("elastic-max", "2x"), 0);
  ASSERT_EQ(call("slurm_spank_init_post_opt"), 0);
  EXPECT_THAT(host.control,
              ElementsAre(Pair("FLEXTRAIN_ELASTIC", "pp"), Pair("FLEXTRAIN_ELASTIC_MAX", "2x")));
}

TEST_F(Spank, RefusesBadValuesInOneLine) {
  ASSERT_EQ(call("slurm_spank_init"), 0);
  EXPECT_NE(give("elastic", "tp"), 0);
  EXPECT_NE(give("elastic-max", "many"), 0);
  EXPECT_NE(give("elastic-max", "0"), 0);
  ASSERT_EQ(host.errors.size(), 3u);
  EXPECT_EQ(host.errors[0], "flextrain: --elastic=tp: unknown mode; use pp or dp+pp");
  EXPECT_THAT(host.errors[1], HasSubstr("--elastic-max=many: not a number"));
  EXPECT_THAT(host.errors[2], HasSubstr("--elastic-max=0: must be at least 1"));
}

TEST_F(Spank, IsSilentWhereTheJobRunsAlready) {
  host.context = S_CTX_REMOTE;
  ASSERT_EQ(call("slurm_spank_init"), 0);
  EXPECT_EQ(give("elastic", "from-a-newer-release", 1), 0);
  ASSERT_EQ(call("slurm_spank_init_post_opt"), 0);
  EXPECT_TRUE(host.control.empty());
  EXPECT_TRUE(host.errors.empty());
}

TEST_F(Spank, ForgetsFlagsInheritedFromTheSurroundingJob) {
  const char* inherited[] = {"SLURM_SPANK__SLURM_SPANK_OPTION_flextrain_elastic",
                             "SLURM_SPANK__SLURM_SPANK_OPTION_flextrain_elastic_max",
                             "SLURM_SPANK_FLEXTRAIN_ELASTIC", "SLURM_SPANK_FLEXTRAIN_ELASTIC_MAX"};
  const char* foreign = "SLURM_SPANK__SLURM_SPANK_OPTION_other_elastic";
  const auto surround = [&] {
    for (const char* name : inherited) setenv(name, "x", 1);
    setenv(foreign, "x", 1);
    host.control = {{"FLEXTRAIN_ELASTIC", "pp"}, {"OTHER", "1"}};
  };
  surround();
  setenv("SLURM_JOB_ID", "12", 1);
  ASSERT_EQ(call("slurm_spank_init"), 0);
  ASSERT_EQ(call("slurm_spank_init_post_opt"), 0);
  for (const char* name : inherited) EXPECT_EQ(getenv(name), nullptr) << name;
  EXPECT_NE(getenv(foreign), nullptr);
  EXPECT_THAT(host.control, ElementsAre(Pair("OTHER", "1")));

  surround();  // … but a flag of the inner command's own counts
  host.options.clear();
  ASSERT_EQ(call("slurm_spank_init"), 0);
  EXPECT_EQ(give("elastic", "pp"), 0);
  ASSERT_EQ(call("slurm_spank_init_post_opt"), 0);
  EXPECT_EQ(host.control["FLEXTRAIN_ELASTIC"], "pp");

  surround();  // srun inside the job starts a step: nothing to forget
  host.context = S_CTX_LOCAL;
  ASSERT_EQ(call("slurm_spank_init"), 0);
  EXPECT_NE(getenv(inherited[0]), nullptr);
  for (const char* name : inherited) unsetenv(name);
  unsetenv(foreign);
}

TEST_F(Spank, OffAcceptsAnythingWithoutEffect) {
  ASSERT_EQ(call("slurm_spank_init", {"off"}), 0);
  EXPECT_EQ(give("elastic", "of-another-release"), 0);
  EXPECT_EQ(give("elastic-max", "4x"), 0);
  ASSERT_EQ(call("slurm_spank_init_post_opt"), 0);
  EXPECT_TRUE(host.control.empty());
  EXPECT_TRUE(host.errors.empty());
}

TEST_F(Spank, NamesAnUnknownPlugstackArgument) {
  ASSERT_EQ(call("slurm_spank_init", {"of"}), 0);
  ASSERT_EQ(host.errors.size(), 1u);
  EXPECT_THAT(host.errors[0], HasSubstr("unknown argument 'of'"));
}

}  // namespace
