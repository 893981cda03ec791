// SPDX-License-Identifier: MIT
// The Communicator over Open MPI. Every call is non-blocking MPI plus mpi_wait().
#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "trainer/comm/communicator.h"
#include "trainer/comm/mpi_wait.h"

namespace flextrain::trainer {
namespace {

// MPI counts are ints, and libraries copy whole messages: larger buffers go in pieces.
constexpr size_t kPiece = size_t{1} << 24;
constexpr int kSizeTag = 1, kBytesTag = 2;  // gather_bytes runs on a communicator of its own

template <typename T>
MPI_Datatype mpi_type();
template <>
MPI_Datatype mpi_type<float>() {
  return MPI_FLOAT;
}
template <>
MPI_Datatype mpi_type<double>() {
  return MPI_DOUBLE;
}

class MpiCommunicator final : public Communicator {
 public:
  // Owns `comm` and `control` (a duplicate, so that control data never meets activations).
  MpiCommunicator(MPI_Comm comm, MPI_Comm control) : comm_(comm), control_(control) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized) return;
    MPI_Comm_free(&control_);
    MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status send(std::span<const float> data, int peer, int tag) override {
    RETURN_IF_ERROR(check_peer(peer));
    return in_pieces(data.size(), [&](size_t begin, int count) {
      return send_piece(data.data() + begin, count, MPI_FLOAT, peer, tag, comm_);
    });
  }
  Status recv(std::span<float> data, int peer, int tag) override {
    RETURN_IF_ERROR(check_peer(peer));
    return in_pieces(data.size(), [&](size_t begin, int count) {
      return recv_piece(data.data() + begin, count, MPI_FLOAT, peer, tag, comm_);
    });
  }

  Status all_reduce(std::span<int64_t> data, ReduceOp op) override {
    if (size_ == 1) return {};
    return in_pieces(data.size(), [&](size_t begin, int count) {
      MPI_Request request;
      RETURN_IF_ERROR(mpi_status(MPI_Iallreduce(MPI_IN_PLACE, data.data() + begin, count,
                                                MPI_INT64_T, mpi_op(op), comm_, &request),
                                 "MPI_Iallreduce"));
      return mpi_wait(&request, "MPI_Iallreduce");
    });
  }
  Status all_reduce(std::span<float> data, ReduceOp op) override {
    return reduce_and_broadcast(data, op);
  }
  Status all_reduce(std::span<double> data, ReduceOp op) override {
    return reduce_and_broadcast(data, op);
  }

  Status broadcast_bytes(std::string& bytes, int root) override {
    RETURN_IF_ERROR(check_peer(root));
    int64_t length = static_cast<int64_t>(bytes.size());
    RETURN_IF_ERROR(broadcast(&length, 1, MPI_INT64_T, root, control_));
    bytes.resize(static_cast<size_t>(length));
    return in_pieces(bytes.size(), [&](size_t begin, int count) {
      return broadcast(bytes.data() + begin, count, MPI_BYTE, root, control_);
    });
  }

  Result<std::vector<std::string>> gather_bytes(std::string_view bytes, int root) override {
    RETURN_IF_ERROR(check_peer(root));
    std::vector<std::string> all;
    if (rank_ != root) {
      const int64_t length = static_cast<int64_t>(bytes.size());
      RETURN_IF_ERROR(send_piece(&length, 1, MPI_INT64_T, root, kSizeTag, control_));
      RETURN_IF_ERROR(in_pieces(bytes.size(), [&](size_t begin, int count) {
        return send_piece(bytes.data() + begin, count, MPI_BYTE, root, kBytesTag, control_);
      }));
      return all;
    }
    all.resize(static_cast<size_t>(size_));
    for (int peer = 0; peer < size_; ++peer) {
      std::string& text = all[static_cast<size_t>(peer)];
      if (peer == root) {
        text = bytes;
        continue;
      }
      int64_t length = 0;
      RETURN_IF_ERROR(recv_piece(&length, 1, MPI_INT64_T, peer, kSizeTag, control_));
      text.resize(static_cast<size_t>(length));
      RETURN_IF_ERROR(in_pieces(text.size(), [&](size_t begin, int count) {
        return recv_piece(text.data() + begin, count, MPI_BYTE, peer, kBytesTag, control_);
      }));
    }
    return all;
  }

  Status barrier() override {
    MPI_Request request;
    RETURN_IF_ERROR(mpi_status(MPI_Ibarrier(control_, &request), "MPI_Ibarrier"));
    return mpi_wait(&request, "MPI_Ibarrier");
  }

  Result<std::unique_ptr<Communicator>> subgroup(const std::vector<int>& ranks,
                                                 int token) override {
    for (size_t i = 0; i < ranks.size(); ++i) {
      RETURN_IF_ERROR(check_peer(ranks[i]));
      if (i > 0 && ranks[i] <= ranks[i - 1])
        return invalid_argument("subgroup: ranks must ascend, {} follows {}", ranks[i],
                                ranks[i - 1]);
    }
    if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end())
      return invalid_argument("subgroup: rank {} is not one of the group it asks for", rank_);
    MPI_Group whole, part;
    RETURN_IF_ERROR(mpi_status(MPI_Comm_group(comm_, &whole), "MPI_Comm_group"));
    MPI_Group_incl(whole, static_cast<int>(ranks.size()), ranks.data(), &part);
    MPI_Comm comm = MPI_COMM_NULL;
    const int code = MPI_Comm_create_group(comm_, part, token, &comm);
    MPI_Group_free(&part);
    MPI_Group_free(&whole);
    RETURN_IF_ERROR(mpi_status(code, "MPI_Comm_create_group"));
    return adopt(comm);
  }

  // Wraps `comm` and takes it over; collective over its ranks.
  static Result<std::unique_ptr<Communicator>> adopt(MPI_Comm comm) {
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm control = MPI_COMM_NULL;
    RETURN_IF_ERROR(mpi_status(MPI_Comm_dup(comm, &control), "MPI_Comm_dup"));
    MPI_Comm_set_errhandler(control, MPI_ERRORS_RETURN);
    return std::unique_ptr<Communicator>(new MpiCommunicator(comm, control));
  }

 private:
  static MPI_Op mpi_op(ReduceOp op) { return op == ReduceOp::kSum ? MPI_SUM : MPI_MAX; }

  template <typename Piece>
  static Status in_pieces(size_t size, Piece&& piece) {
    for (size_t begin = 0; begin < size; begin += kPiece)
      RETURN_IF_ERROR(piece(begin, static_cast<int>(std::min(kPiece, size - begin))));
    return {};
  }

  // Rendezvous: MPI_Issend completes only once the receiver has begun.
  static Status send_piece(const void* data, int count, MPI_Datatype type, int peer, int tag,
                           MPI_Comm comm) {
    MPI_Request request;
    RETURN_IF_ERROR(
        mpi_status(MPI_Issend(data, count, type, peer, tag, comm, &request), "MPI_Issend"));
    return mpi_wait(&request, "MPI_Issend");
  }
  static Status recv_piece(void* data, int count, MPI_Datatype type, int peer, int tag,
                           MPI_Comm comm) {
    MPI_Request request;
    RETURN_IF_ERROR(
        mpi_status(MPI_Irecv(data, count, type, peer, tag, comm, &request), "MPI_Irecv"));
    return mpi_wait(&request, "MPI_Irecv");
  }
  static Status broadcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    MPI_Request request;
    RETURN_IF_ERROR(mpi_status(MPI_Ibcast(data, count, type, root, comm, &request), "MPI_Ibcast"));
    return mpi_wait(&request, "MPI_Ibcast");
  }

  // Floating-point sums are made on one rank and sent out, so that every rank has the same bits
  // whatever algorithm MPI chooses.
  template <typename T>
  Status reduce_and_broadcast(std::span<T> data, ReduceOp op) {
    if (size_ == 1) return {};
    return in_pieces(data.size(), [&](size_t begin, int count) {
      T* piece = data.data() + begin;
      MPI_Request request;
      RETURN_IF_ERROR(mpi_status(MPI_Ireduce(rank_ == 0 ? MPI_IN_PLACE : piece, piece, count,
                                             mpi_type<T>(), mpi_op(op), 0, comm_, &request),
                                 "MPI_Ireduce"));
      RETURN_IF_ERROR(mpi_wait(&request, "MPI_Ireduce"));
      return broadcast(piece, count, mpi_type<T>(), 0, comm_);
    });
  }

  Status check_peer(int peer) const {
    if (peer >= 0 && peer < size_) return {};
    return invalid_argument("rank {} is outside the communicator's 0 … {}", peer, size_ - 1);
  }

  MPI_Comm comm_;
  MPI_Comm control_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

Result<std::unique_ptr<Communicator>> open_world(int* argc, char*** argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized) return failed_precondition("open_world: called twice in one process");
  // A process on its own needs no daemon beside it, which would want ssh or a shell to be there;
  // for processes that a launcher started this changes nothing.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  int provided = 0;
  RETURN_IF_ERROR(
      mpi_status(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread"));
  // Sleeping waits are tens of microseconds; the default timer slack would double them.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
  MPI_Comm comm = MPI_COMM_NULL;
  RETURN_IF_ERROR(mpi_status(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup"));
  return MpiCommunicator::adopt(comm);
}

void close_world() { MPI_Finalize(); }

void abort_world(int exit_code) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace flextrain::trainer
