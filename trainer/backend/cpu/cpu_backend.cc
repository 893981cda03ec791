// SPDX-License-Identifier: MIT
// The CPU backend: synchronous, one thread, host memory.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "trainer/backend/backend.h"
#include "trainer/backend/cpu/arena.h"
#include "trainer/backend/cpu/attention.h"
#include "trainer/backend/cpu/kernels.h"
#include "trainer/backend/cpu/matmul.h"
#include "trainer/backend/tensor_access.h"

namespace flextrain::trainer {
namespace {

float* f32(Tensor t) { return TensorAccess::f32(t); }
double* f64(Tensor t) { return TensorAccess::f64(t); }
int32_t* i32(Tensor t) { return TensorAccess::i32(t); }
int64_t* i64(Tensor t) { return TensorAccess::i64(t); }

double physical_memory() {  // bytes
  static const double bytes =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend() : attention_(matmul_, arena_) {}
  Status open() { return matmul_.open(); }

  std::string fingerprint() const override { return cpu_backend_fingerprint(); }

  Status check_room(double bytes) const override {
    const double wanted = static_cast<double>(arena_.allocated_bytes()) + bytes;
    if (wanted <= physical_memory()) return {};
    return invalid_argument(
        "this rank needs more than {:.1f} GB, the machine has {:.1f} GB: make the model smaller or "
        "the pipeline deeper",
        wanted / 1e9, physical_memory() / 1e9);
  }
  Result<Tensor> allocate(DType dtype, int64_t size) override {
    RETURN_IF_ERROR(check_room(static_cast<double>(size * dtype_bytes(dtype))));
    void* memory = arena_.allocate(size * dtype_bytes(dtype));
    if (memory == nullptr)
      return resource_exhausted("no memory for a tensor of {} bytes, {} are held already",
                                size * dtype_bytes(dtype), arena_.allocated_bytes());
    return TensorAccess::make(memory, size, dtype);
  }
  int64_t allocated_bytes() const override { return arena_.allocated_bytes(); }

  void upload(Tensor to, std::span<const float> from) override {
    std::copy(from.begin(), from.end(), f32(to));
  }
  void upload(Tensor to, std::span<const int32_t> from) override {
    std::copy(from.begin(), from.end(), i32(to));
  }
  void download(Tensor from, std::span<float> to) override {
    std::copy_n(f32(from), to.size(), to.begin());
  }
  void download(Tensor from, std::span<double> to) override {
    std::copy_n(f64(from), to.size(), to.begin());
  }
  void download(Tensor from, std::span<int64_t> to) override {
    std::copy_n(i64(from), to.size(), to.begin());
  }
  std::span<float> communication_f32(Tensor tensor) override {
    return {f32(tensor), static_cast<size_t>(tensor.size())};
  }
  std::span<int64_t> communication_i64(Tensor tensor) override {
    return {i64(tensor), static_cast<size_t>(tensor.size())};
  }

  Status synchronize() override { return status_; }
  Event record_event() override {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return {static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec)};
  }
  double seconds_between(Event begin, Event end) override { return end.seconds - begin.seconds; }

  void fill_zero(Tensor t) override { std::memset(TensorAccess::raw(t), 0, bytes(t)); }
  void copy(Tensor to, Tensor from) override {
    std::memcpy(TensorAccess::raw(to), TensorAccess::raw(from), bytes(from));
  }
  void add(Tensor a, Tensor b, Tensor out) override {
    kernels::add(f32(a), f32(b), f32(out), out.size());
  }

  void embedding_forward(Tensor table, Tensor tokens, Tensor out, int64_t width) override {
    for (int64_t row = 0; row < tokens.size(); ++row) {
      const int32_t token = i32(tokens)[row];
      float* to = f32(out) + row * width;
      if (token < 0)
        std::fill_n(to, width, 0.0f);
      else
        std::copy_n(f32(table) + token * width, width, to);
    }
  }
  void embedding_backward(Tensor tokens, Tensor out_grad, Tensor table_grad,
                          int64_t width) override {
    for (int64_t row = 0; row < tokens.size(); ++row) {
      const int32_t token = i32(tokens)[row];
      if (token < 0) continue;
      float* to = f32(table_grad) + token * width;
      kernels::add(to, f32(out_grad) + row * width, to, width);
    }
  }
  void embedding_fold(Tensor tokens, Tensor out_grad, Tensor accumulator, int64_t width,
                      const FoldParams& params, Tensor status) override {
    for (int64_t row = 0; row < tokens.size(); ++row) {
      const int32_t token = i32(tokens)[row];
      if (token < 0) continue;
      raise(status, kernels::fold(f32(out_grad) + row * width, i64(accumulator) + token * width,
                                  width, params, false));
    }
  }

  void rms_norm_forward(Tensor x, Tensor weight, Tensor y, Tensor inverse_rms, int64_t width,
                        float eps) override {
    kernels::rms_norm_forward(f32(x), f32(weight), f32(y), f32(inverse_rms), inverse_rms.size(),
                              width, eps);
  }
  void rms_norm_backward(Tensor x, Tensor weight, Tensor inverse_rms, Tensor y_grad, Tensor x_grad,
                         Tensor weight_grad, int64_t width, bool accumulate) override {
    if (!accumulate) fill_zero(weight_grad);
    kernels::rms_norm_backward(f32(x), f32(weight), f32(inverse_rms), f32(y_grad), f32(x_grad),
                               f32(weight_grad), inverse_rms.size(), width);
  }

  void linear_forward(Tensor x, Tensor weight, Tensor y, const LinearShape& s) override {
    check(matmul_.run({s.rows, s.out, s.in, s.in, 1, 1, s.in, s.out, false}, f32(x), f32(weight),
                      f32(y)));
  }
  void linear_backward_input(Tensor y_grad, Tensor weight, Tensor x_grad,
                             const LinearShape& s) override {
    check(matmul_.run({s.rows, s.in, s.out, s.out, 1, s.in, 1, s.in, false}, f32(y_grad),
                      f32(weight), f32(x_grad)));
  }
  void linear_backward_weight(Tensor y_grad, Tensor x, Tensor weight_grad, const LinearShape& s,
                              bool accumulate) override {
    check(matmul_.run({s.out, s.in, s.rows, 1, s.out, s.in, 1, s.in, accumulate}, f32(y_grad),
                      f32(x), f32(weight_grad)));
  }

  void rope(Tensor qkv, Tensor cosine, Tensor sine, const AttentionShape& shape,
            bool inverse) override {
    kernels::rope(f32(qkv), f32(cosine), f32(sine), shape, inverse);
  }
  void attention_forward(Tensor qkv, Tensor out, Tensor log_sum,
                         const AttentionShape& shape) override {
    check(attention_.forward(f32(qkv), f32(out), f32(log_sum), shape));
  }
  void attention_backward(Tensor qkv, Tensor out, Tensor log_sum, Tensor out_grad, Tensor qkv_grad,
                          const AttentionShape& shape) override {
    check(
        attention_.backward(f32(qkv), f32(out), f32(log_sum), f32(out_grad), f32(qkv_grad), shape));
  }

  void swiglu_forward(Tensor gate_up, Tensor activated, int64_t width) override {
    kernels::swiglu_forward(f32(gate_up), f32(activated), activated.size() / width, width);
  }
  void swiglu_backward(Tensor gate_up, Tensor activated_grad, Tensor gate_up_grad, Tensor activated,
                       int64_t width) override {
    kernels::swiglu_backward(f32(gate_up), f32(activated_grad), f32(gate_up_grad), f32(activated),
                             activated.size() / width, width);
  }

  void softmax_cross_entropy(Tensor logits, Tensor targets, Tensor row_loss, int64_t vocab,
                             float grad_scale, bool want_grad) override {
    kernels::softmax_cross_entropy(f32(logits), i32(targets), f64(row_loss), targets.size(), vocab,
                                   grad_scale, want_grad);
  }

  void fold(Tensor gradient, Tensor accumulator, const FoldParams& params, bool first,
            Tensor status) override {
    raise(status, kernels::fold(f32(gradient), i64(accumulator), gradient.size(), params, first));
  }
  void sum_of_squares(Tensor values, int scale, Tensor sum) override {
    f64(sum)[0] = values.dtype() == DType::kInt64
                      ? kernels::sum_of_squares(i64(values), values.size(), scale)
                      : kernels::sum_of_squares(f32(values), values.size());
  }
  void adamw(Tensor weight, Tensor first_moment, Tensor second_moment, Tensor gradient,
             const AdamParams& params) override {
    if (gradient.dtype() == DType::kInt64)
      kernels::adamw(f32(weight), f32(first_moment), f32(second_moment), i64(gradient),
                     weight.size(), params);
    else
      kernels::adamw(f32(weight), f32(first_moment), f32(second_moment), f32(gradient),
                     weight.size(), params);
  }

 private:
  static size_t bytes(Tensor t) { return static_cast<size_t>(t.size() * dtype_bytes(t.dtype())); }
  static void raise(Tensor status, int64_t level) {
    i64(status)[0] = std::max(i64(status)[0], level);
  }
  void check(Status status) {
    if (status_.ok() && !status.ok()) status_ = std::move(status);
  }

  Arena arena_;
  Matmul matmul_;
  CpuAttention attention_;
  Status status_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend() {
  auto backend = std::make_unique<CpuBackend>();
  RETURN_IF_ERROR(backend->open());
  return std::unique_ptr<Backend>(std::move(backend));
}

std::string cpu_backend_fingerprint() {
  // lanes16: the own kernels' order of operations (lanes.h), the same on every machine.
  return "cpu;" + onednn_fingerprint() + ";lanes16";
}

}  // namespace flextrain::trainer
