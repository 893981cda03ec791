# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# build_ring USER: a small MPI program in USER's home, ring/ring; each rank prints its place, the
# GPUs it was given and how many of the node's device files it may open. Sourced by tests.

build_ring() {
  local dir
  dir=$(home "$1")/ring
  mkdir -p "$dir"
  cat >"$dir/ring.c" <<'C'
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Allowed devices have no driver behind them (ENXIO); refused ones answer EPERM. */
static int allowed_devices(void) {
  int count = 0;
  for (int i = 0; i < 8; i++) {
    char path[64];
    snprintf(path, sizeof path, "/run/gpu/nvidia%d", i);
    if (open(path, O_RDONLY) < 0 && errno == ENXIO) count++;
  }
  return count;
}

int main(int argc, char **argv) {
  int rank, size, token = 0, name_length;
  char name[MPI_MAX_PROCESSOR_NAME];
  const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *job = getenv("SLURM_JOB_ID");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(name, &name_length);
  if (rank > 0) MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  token += rank + 1;
  MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("token %d of %d ranks\n", token, size);
  }
  printf("rank %d on %s job %s visible %s allowed %d\n", rank, name, job ? job : "-",
         visible ? visible : "-", allowed_devices());
  MPI_Finalize();
  return 0;
}
C
  mpicc -O1 -o "$dir/ring" "$dir/ring.c" && vc exec ctl chown -R "$1:" "$dir"
}
