// SPDX-License-Identifier: MIT
// trainer/comm: talking between ranks. The only place that includes mpi.h (later nccl.h).
//
// A Communicator is built from a rank list and a bootstrap token and can be rebuilt inside a
// process; nothing outside this folder knows MPI_COMM_WORLD. Buffers are Backend tensors or plain
// host bytes for control data. Not thread-safe: one thread per Communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace flextrain::trainer {

enum class ReduceOp { kSum, kMax };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Of the machine this rank is on; equal for ranks that share one.
  virtual std::string node_name() const;

  // Point to point, rendezvous semantics, host memory of the CPU backend (a device backend has its
  // own implementation). `tag` distinguishes streams of messages between the same pair.
  virtual Status send(std::span<const float> data, int peer, int tag) = 0;
  virtual Status recv(std::span<float> data, int peer, int tag) = 0;

  // Collectives over all ranks of this communicator.
  virtual Status all_reduce(std::span<int64_t> data, ReduceOp op) = 0;
  virtual Status all_reduce(std::span<float> data, ReduceOp op) = 0;
  virtual Status all_reduce(std::span<double> data, ReduceOp op) = 0;
  virtual Status broadcast_bytes(std::string& bytes, int root) = 0;  // resizes on the receivers
  // Root receives everyone's bytes in rank order; others get an empty vector.
  virtual Result<std::vector<std::string>> gather_bytes(std::string_view bytes, int root) = 0;
  virtual Status barrier() = 0;

  // A communicator over `ranks` (of this one, ascending); collective over exactly these ranks,
  // which all pass the same `token`.
  virtual Result<std::unique_ptr<Communicator>> subgroup(const std::vector<int>& ranks,
                                                         int token) = 0;
};

// Initialises the process's transport (MPI_Init) and returns the communicator over all launched
// processes; works for a single process started without mpirun too. Call once.
Result<std::unique_ptr<Communicator>> open_world(int* argc, char*** argv);
// MPI_Finalize; call once, after every Communicator is gone. abort_world never returns.
void close_world();
[[noreturn]] void abort_world(int exit_code);

}  // namespace flextrain::trainer
