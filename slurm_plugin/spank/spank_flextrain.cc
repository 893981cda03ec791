// SPDX-License-Identifier: GPL-2.0-or-later
// slurm_plugin/spank: the flags --elastic[=pp|dp+pp] and --elastic-max=N|Kx of sbatch, salloc and
// srun (spank(8)). It checks one flag's own value and hands both to job_submit_flextrain in the job
// control environment, which arrives in job_desc->spank_job_env; what needs more than one value
// (maximum below the request …) is checked there, because a failing slurm_spank_init_post_opt of an
// `optional` plugin is ignored.
//
// plugstack.conf:  optional spank_flextrain.so        the flags work
//                  optional spank_flextrain.so off    accepted without effect: what keeps job
//                                                     scripts valid where flextrain was removed
//
// Loaded into users' commands, slurmd and slurmstepd: it depends on libc alone and never throws.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {  // spank.h declares slurm_spank_* outside its own extern "C"
#include <slurm/spank.h>
}

#include "protocol/elastic_request.h"
#include "slurm_plugin/spank/transport.h"

extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
extern char** environ;
}
// Definitions apart from the block: inside extern "C" { } a const has internal linkage.
const char plugin_name[] = "flextrain";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUMBER;
const unsigned int spank_plugin_version = 1;

namespace flextrain::slurm_plugin {
namespace {

constexpr int kElastic = 1;
constexpr int kElasticMax = 2;

// The command's last word on each flag: #SBATCH lines are read first, the command line after them.
// One process makes one submission, so plain globals do.
bool given_elastic = false, given_max = false, switched_off = false;
std::string elastic_value, max_value;

int on_option(int which, const char* argument, int remote) {
  if (remote || switched_off) return 0;  // the job runs already, or nobody wants to know
  try {
    // "(null)": a flag without argument that Slurm hands on to a het job's next component.
    const char* text = argument && std::strcmp(argument, "(null)") != 0 ? argument : "";
    if (which == kElastic) {
      const auto mode = protocol::parse_elastic_mode(text);
      if (!mode.ok()) {
        slurm_error("flextrain: %s", mode.status().message().c_str());
        return -1;
      }
      given_elastic = true;
      elastic_value = protocol::elastic_mode_name(*mode);
    } else {
      const auto max = protocol::parse_elastic_max(text);
      if (!max.ok()) {
        slurm_error("flextrain: %s", max.status().message().c_str());
        return -1;
      }
      given_max = true;
      max_value = text;
    }
    return 0;
  } catch (...) {
    slurm_error("flextrain: out of memory");
    return -1;
  }
}

bool is_ours(const char* entry) {
  return std::strncmp(entry, kInheritedOptionPrefix, std::strlen(kInheritedOptionPrefix)) == 0 ||
         std::strncmp(entry, kInheritedControlPrefix, std::strlen(kInheritedControlPrefix)) == 0;
}

// A job's environment carries its own flags (SLURM_SPANK_*), and a command inside the job would
// hand them on: the new job would be elastic although nobody asked. Only flags of this command
// count.
void forget_inherited_flags(spank_t spank) {
  std::vector<std::string> names;
  for (char** entry = environ; entry && *entry; ++entry) {
    if (is_ours(*entry)) names.emplace_back(*entry, std::strcspn(*entry, "="));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
  spank_job_control_unsetenv(spank, kElasticName);
  spank_job_control_unsetenv(spank, kElasticMaxName);
}

spank_option make_option(const char* name, const char* argument, const char* usage,
                         int has_argument, int value) {
  return {const_cast<char*>(name),
          const_cast<char*>(argument),
          const_cast<char*>(usage),
          has_argument,
          value,
          on_option};
}

}  // namespace
}  // namespace flextrain::slurm_plugin

using namespace flextrain::slurm_plugin;

extern "C" int slurm_spank_init(spank_t spank, int argc, char** argv) {
  try {
    given_elastic = given_max = switched_off = false;
    for (int i = 0; i < argc; ++i) {
      if (std::strcmp(argv[i], "off") == 0) {
        switched_off = true;
      } else {
        slurm_error(
            "flextrain: plugstack.conf: unknown argument '%s' of spank_flextrain.so; only "
            "'off' is known",
            argv[i]);
      }
    }
    if (spank_context() == S_CTX_ALLOCATOR && std::getenv("SLURM_JOB_ID")) {
      forget_inherited_flags(spank);
    }
    // Registered in every context: slurmstepd must know the options that a job carries.
    spank_option elastic = make_option(
        "elastic", "pp|dp+pp",
        "grow this training job into idle GPUs and give them back on demand (flextrain); "
        "default dp+pp",
        2, kElastic);
    spank_option max = make_option("elastic-max", "N|Kx",
                                   "most GPUs of an --elastic job: a count, or times the request "
                                   "(default 4x)",
                                   1, kElasticMax);
    const int rc = spank_option_register(spank, &elastic);
    return rc == ESPANK_SUCCESS ? spank_option_register(spank, &max) : rc;
  } catch (...) {
    return ESPANK_ERROR;
  }
}

extern "C" int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  const spank_context_t context = spank_context();
  if (context != S_CTX_ALLOCATOR && context != S_CTX_LOCAL) return ESPANK_SUCCESS;
  if (switched_off) return ESPANK_SUCCESS;
  int rc = ESPANK_SUCCESS;
  if (given_elastic) rc = spank_job_control_setenv(spank, kElasticName, elastic_value.c_str(), 1);
  if (given_max && rc == ESPANK_SUCCESS) {
    rc = spank_job_control_setenv(spank, kElasticMaxName, max_value.c_str(), 1);
  }
  if (rc != ESPANK_SUCCESS) {
    // Optional plugins' return codes are ignored, so say it; the job would run at its own size.
    slurm_error("flextrain: the elastic flags could not be handed over (%s)",
                spank_strerror(static_cast<spank_err_t>(rc)));
  }
  return rc;
}
