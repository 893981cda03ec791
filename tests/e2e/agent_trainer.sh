# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# build_agent_trainer USER: an MPI program in USER's home (agent/trainer) that keeps
# docs/agent-contract.md: it adds numbers over all ranks instead of training, and checks the sums.
# Sourced by tests.

build_agent_trainer() {
  local dir
  dir=$(home "$1")/agent
  mkdir -p "$dir"
  cat >"$dir/trainer.c" <<'C'
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked = 0;
static void on_signal(int number) { (void)number; stop_asked = 1; }
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static const char *dir;
static void phase(const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/phases.jsonl", dir);
  FILE *f = fopen(path, "a");
  fprintf(f, "{\"phase\":\"%s\",\"time\":%.6f}\n", name, now());
  fclose(f);
}
static void put(const char *folder, const char *name, const char *text) {
  char path[4096], temp[4100];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  snprintf(temp, sizeof temp, "%s.tmp", path);
  FILE *f = fopen(temp, "w");
  fputs(text, f);
  fclose(f);
  rename(temp, path);
}

int main(int argc, char **argv) {
  int rank, size, length;
  long total = argc > 1 ? atol(argv[1]) : 1000000, step = 0;
  char host[MPI_MAX_PROCESSOR_NAME], text[1024];
  const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *job = getenv("SLURM_JOB_ID");
  dir = getenv("FLEXTRAIN_CONTROL_DIR");
  signal(SIGUSR1, on_signal);
  signal(SIGTERM, on_signal);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  printf("place %d of %d on %s job %s visible %s\n", rank, size, host, job ? job : "-",
         visible ? visible : "-");
  fflush(stdout);
  if (rank == 0) {
    phase("init");
    FILE *f = fopen("agent/checkpoint", "r");
    if (f && fscanf(f, "%ld", &step) != 1) step = 0;
    if (f) fclose(f);
    put(dir, "fingerprint", "mini\n");
    phase("load");
  }
  MPI_Bcast(&step, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  for (int first = 1; step < total; first = 0) {
    long mine[2] = {rank + 1, stop_asked}, sum[2];
    usleep(20000);
    MPI_Allreduce(mine, sum, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (sum[0] != (long)size * (size + 1) / 2) MPI_Abort(MPI_COMM_WORLD, 9);
    ++step;
    if (rank == 0) {
      if (first) phase("first_step");
      snprintf(text, sizeof text,
               "{\"step\":%ld,\"total_steps\":%ld,\"loss\":1.0,\"tokens_per_second\":1,"
               "\"step_seconds\":0.02,\"gpus\":%d,\"plan_id\":\"p\",\"time\":%.6f}\n",
               step, total, size, now());
      put(dir, "progress.json", text);
    }
    if (sum[1] > 0) {
      if (rank == 0) {
        snprintf(text, sizeof text, "%ld\n", step);
        put("agent", "checkpoint", text);
        phase("save");
      }
      MPI_Finalize();
      return 85;
    }
  }
  MPI_Finalize();
  return 0;
}
C
  mpicc -O1 -Wall -o "$dir/trainer" "$dir/trainer.c" && vc exec ctl chown -R "$1:" "$dir"
}
