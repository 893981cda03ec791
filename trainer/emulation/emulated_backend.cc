// SPDX-License-Identifier: MIT
#include "trainer/emulation/emulated_backend.h"

#include <algorithm>

#include "trainer/backend/tensor_access.h"
#include "trainer/emulation/device_memory.h"
#include "trainer/emulation/noise.h"

namespace flextrain::trainer {
namespace {

constexpr double kF32 = 4, kI64 = 8;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

class EmulatedBackend final : public Backend {
 public:
  EmulatedBackend(const ClusterProfile& cluster, RankScheduler& scheduler, int rank)
      : scheduler_(scheduler),
        name_(fmt::format("emulated;{}", cluster.name)),
        memory_bytes_(cluster.memory_gib * kGiB),
        launch_(cluster.launch_us * 1e-6),
        byte_seconds_(1 / (cluster.memory_gb_per_s * 1e9)),
        host_byte_seconds_(1 / (cluster.host_gb_per_s * 1e9)),
        matmul_seconds_(1 / (cluster.matmul_tflops * cluster.matmul_efficiency * 1e12)),
        attention_seconds_(1 / (cluster.matmul_tflops * cluster.attention_efficiency * 1e12)),
        kernel_noise_(cluster.kernel),
        noise_key_(mix_bits(cluster.seed * 0x1000003 + static_cast<uint64_t>(rank))) {
    slowness_ = noisy_factor(cluster.device, ~noise_key_);
    if (cluster.nodes_apart > 0 &&
        cluster.node_of(rank) % cluster.nodes_apart == cluster.nodes_apart - 1) {
      slowness_ /= cluster.speed;
    }
  }

  std::string fingerprint() const override { return name_; }
  bool holds_values() const override { return false; }

  Status check_room(double bytes) const override {
    if (static_cast<double>(allocated_) + bytes <= memory_bytes_) return {};
    return invalid_argument(
        "out of device memory: {:.2f} GB are needed beside the {:.2f} GB taken, the device has "
        "{:.2f} GB (device.memory_gib); use more stages, recomputation or smaller micro-batches",
        bytes / 1e9, static_cast<double>(allocated_) / 1e9, memory_bytes_ / 1e9);
  }
  Result<Tensor> allocate(DType dtype, int64_t size) override {
    const int64_t bytes = size * dtype_bytes(dtype);
    RETURN_IF_ERROR(check_room(static_cast<double>(bytes)));
    void* address =
        reinterpret_cast<void*>(kEmulatedMemory + 64 + static_cast<uintptr_t>(allocated_));
    allocated_ += bytes;
    return TensorAccess::make(address, size, dtype);
  }
  int64_t allocated_bytes() const override { return allocated_; }

  void upload(Tensor to, std::span<const float>) override { host_copy(to); }
  void upload(Tensor to, std::span<const int32_t>) override { host_copy(to); }
  void download(Tensor from, std::span<float> to) override { read_back(from, to); }
  void download(Tensor from, std::span<double> to) override { read_back(from, to); }
  void download(Tensor from, std::span<int64_t> to) override { read_back(from, to); }
  std::span<float> communication_f32(Tensor tensor) override {
    return {static_cast<float*>(TensorAccess::raw(tensor)), static_cast<size_t>(tensor.size())};
  }
  std::span<int64_t> communication_i64(Tensor tensor) override {
    return {static_cast<int64_t*>(TensorAccess::raw(tensor)), static_cast<size_t>(tensor.size())};
  }

  Status synchronize() override { return {}; }
  double clock_seconds() const override { return scheduler_.now(); }
  void pause(double seconds) override { scheduler_.advance(seconds); }
  Event record_event() override { return {scheduler_.now()}; }
  double seconds_between(Event begin, Event end) override { return end.seconds - begin.seconds; }

  void fill_zero(Tensor tensor) override { stream(bytes_of(tensor)); }
  void copy(Tensor to, Tensor from) override { stream(bytes_of(to) + bytes_of(from)); }
  void add(Tensor a, Tensor, Tensor) override { stream(3 * bytes_of(a)); }

  void embedding_forward(Tensor, Tensor, Tensor out, int64_t) override {
    stream(2 * bytes_of(out));
  }
  void embedding_backward(Tensor, Tensor out_grad, Tensor, int64_t) override {
    stream(3 * bytes_of(out_grad));
  }
  void embedding_fold(Tensor, Tensor out_grad, Tensor, int64_t, const FoldParams&,
                      Tensor) override {
    stream(size_of(out_grad) * (kF32 + 2 * kI64));
  }

  void rms_norm_forward(Tensor x, Tensor, Tensor, Tensor, int64_t, float) override {
    stream(2 * bytes_of(x));
  }
  void rms_norm_backward(Tensor x, Tensor, Tensor, Tensor, Tensor, Tensor, int64_t, bool) override {
    stream(4 * bytes_of(x));
  }

  void linear_forward(Tensor, Tensor, Tensor, const LinearShape& shape) override { matmul(shape); }
  void linear_backward_input(Tensor, Tensor, Tensor, const LinearShape& shape) override {
    matmul(shape);
  }
  void linear_backward_weight(Tensor, Tensor, Tensor, const LinearShape& shape, bool) override {
    matmul(shape);
  }

  void rope(Tensor qkv, Tensor, Tensor, const AttentionShape&, bool) override {
    stream(2 * bytes_of(qkv));
  }
  void attention_forward(Tensor, Tensor, Tensor, const AttentionShape& shape) override {
    attention(shape, 2);
  }
  void attention_backward(Tensor, Tensor, Tensor, Tensor, Tensor,
                          const AttentionShape& shape) override {
    attention(shape, 5);  // scores again, four gradients
  }

  void swiglu_forward(Tensor gate_up, Tensor activated, int64_t) override {
    stream(bytes_of(gate_up) + bytes_of(activated));
  }
  void swiglu_backward(Tensor gate_up, Tensor activated_grad, Tensor, Tensor, int64_t) override {
    stream(2 * bytes_of(gate_up) + 2 * bytes_of(activated_grad));
  }

  void softmax_cross_entropy(Tensor logits, Tensor, Tensor, int64_t, float, bool) override {
    stream(3 * bytes_of(logits));
  }

  void fold(Tensor gradient, Tensor accumulator, const FoldParams&, bool first, Tensor) override {
    stream(bytes_of(gradient) + (first ? 1 : 2) * bytes_of(accumulator));
  }
  void sum_of_squares(Tensor values, int, Tensor) override { stream(bytes_of(values)); }
  void adamw(Tensor weight, Tensor, Tensor, Tensor gradient, const AdamParams&) override {
    stream(6 * bytes_of(weight) + bytes_of(gradient));
  }

 private:
  static double size_of(Tensor t) { return static_cast<double>(t.size()); }
  static double bytes_of(Tensor t) {
    return size_of(t) * static_cast<double>(dtype_bytes(t.dtype()));
  }

  // One kernel.
  void run(double seconds) {
    scheduler_.advance((launch_ + seconds) * slowness_ *
                       noisy_factor(kernel_noise_, noise_key_ + ++kernels_));
  }
  void stream(double bytes) { run(bytes * byte_seconds_); }
  void matmul(const LinearShape& s) {
    const double rows = static_cast<double>(s.rows), in = static_cast<double>(s.in),
                 out = static_cast<double>(s.out);
    run(std::max(2 * rows * in * out * matmul_seconds_,
                 kF32 * (rows * in + in * out + rows * out) * byte_seconds_));
  }
  // `products` of [length, length] by head_dim per head, of which the causal half is computed.
  void attention(const AttentionShape& s, int products) {
    const double length = static_cast<double>(s.length);
    run(products * static_cast<double>(s.sequences * s.heads * s.head_dim) * length * length *
        attention_seconds_);
  }
  void host_copy(Tensor tensor) { run(bytes_of(tensor) * host_byte_seconds_); }
  template <typename T>
  void read_back(Tensor from, std::span<T> to) {
    std::fill(to.begin(), to.end(), T{});
    host_copy(from);
  }

  RankScheduler& scheduler_;
  const std::string name_;
  const double memory_bytes_, launch_, byte_seconds_, host_byte_seconds_, matmul_seconds_,
      attention_seconds_, kernel_noise_;
  double slowness_ = 1;  // of this device
  const uint64_t noise_key_;
  uint64_t kernels_ = 0;
  int64_t allocated_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_emulated_backend(const ClusterProfile& cluster,
                                               RankScheduler& scheduler, int rank) {
  return std::make_unique<EmulatedBackend>(cluster, scheduler, rank);
}

}  // namespace flextrain::trainer
