// SPDX-License-Identifier: MIT
// One rank of a check of every Communicator call; run under mpirun with any number of ranks. Exits
// with 1 and names the check that failed.
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "trainer/comm/communicator.h"

namespace flextrain::trainer {
namespace {

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "rank %d, line %d: %s\n", world.rank(), __LINE__, #condition); \
      abort_world(1);                                                                     \
    }                                                                                     \
  } while (0)

void check_ring(Communicator& world) {
  // Rendezvous sends round a ring deadlock unless one side receives first.
  const int n = world.size(), rank = world.rank(), next = (rank + 1) % n,
            previous = (rank + n - 1) % n;
  if (n == 1) return;
  std::vector<float> out(100000, static_cast<float>(rank)), in(out.size());
  for (int tag : {0, 7, 1 << 20}) {
    if (rank == 0) {
      CHECK(world.send(out, next, tag).ok());
      CHECK(world.recv(in, previous, tag).ok());
    } else {
      CHECK(world.recv(in, previous, tag).ok());
      CHECK(world.send(out, next, tag).ok());
    }
    CHECK(in.front() == static_cast<float>(previous) && in.back() == in.front());
  }
}

void check_collectives(Communicator& world) {
  const int n = world.size(), rank = world.rank();
  // Sums beyond 2^53: doubles would lose them.
  std::vector<int64_t> ints(1000, (int64_t{1} << 55) + rank);
  CHECK(world.all_reduce(std::span<int64_t>(ints), ReduceOp::kSum).ok());
  CHECK(ints[999] == n * (int64_t{1} << 55) + n * (n - 1) / 2);
  ints.assign(3, -rank);
  CHECK(world.all_reduce(std::span<int64_t>(ints), ReduceOp::kMax).ok());
  CHECK(ints[2] == 0);
  std::vector<float> floats(5, 0.1f * static_cast<float>(rank + 1));
  CHECK(world.all_reduce(std::span<float>(floats), ReduceOp::kSum).ok());
  std::vector<double> doubles(4, rank == n - 1 ? 2.5 : 0.0);
  CHECK(world.all_reduce(std::span<double>(doubles), ReduceOp::kSum).ok());
  CHECK(doubles[3] == 2.5);
  // Every rank has the same bits of a float sum.
  std::string bits(reinterpret_cast<const char*>(floats.data()), sizeof(float));
  const auto all = world.gather_bytes(bits, 0);
  CHECK(all.ok());
  CHECK(all->size() == (rank == 0 ? static_cast<size_t>(n) : 0));
  for (const std::string& other : *all) CHECK(other == bits);
}

void check_bytes(Communicator& world) {
  const int n = world.size(), rank = world.rank(), root = n - 1;
  std::string text = rank == root ? std::string(70000, 'x') + "end" : "to be replaced";
  CHECK(world.broadcast_bytes(text, root).ok());
  CHECK(text.size() == 70003 && text.ends_with("xend"));
  const auto all = world.gather_bytes(std::string(static_cast<size_t>(rank), 'a'), root);
  CHECK(all.ok());
  for (size_t i = 0; i < all->size(); ++i) CHECK((*all)[i].size() == i);
  CHECK(world.barrier().ok());
}

void check_subgroups(Communicator& world) {
  const int n = world.size(), rank = world.rank();
  std::vector<int> same_parity;
  for (int r = rank % 2; r < n; r += 2) same_parity.push_back(r);
  auto group = world.subgroup(same_parity, 3);
  CHECK(group.ok());
  CHECK((*group)->size() == static_cast<int>(same_parity.size()));
  std::vector<int64_t> sum = {rank};
  CHECK((*group)->all_reduce(std::span<int64_t>(sum), ReduceOp::kSum).ok());
  int64_t wanted = 0;
  for (int r : same_parity) wanted += r;
  CHECK(sum[0] == wanted);
  CHECK(world.subgroup({n}, 0).status().code() == StatusCode::kInvalidArgument);
  CHECK(world.subgroup({rank, rank}, 0).status().code() == StatusCode::kInvalidArgument);
  CHECK(world.send({}, n, 0).code() == StatusCode::kInvalidArgument);
}

// A rank that waits must leave the core to the others.
void check_waiting_is_cheap(Communicator& world) {
  if (world.size() == 1) return;
  if (world.rank() == 0) {
    const timespec pause{0, 300'000'000};
    nanosleep(&pause, nullptr);
  }
  const auto cpu = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double before = cpu();
  CHECK(world.barrier().ok());
  CHECK(cpu() - before < 0.1);
}

}  // namespace
}  // namespace flextrain::trainer

int main(int argc, char** argv) {
  using namespace flextrain::trainer;
  auto opened = open_world(&argc, &argv);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().to_string().c_str());
    return 1;
  }
  Communicator& world = **opened;
  check_ring(world);
  check_collectives(world);
  check_bytes(world);
  check_subgroups(world);
  check_waiting_is_cheap(world);
  opened->reset();
  close_world();
  return 0;
}
