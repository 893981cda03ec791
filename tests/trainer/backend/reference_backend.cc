// SPDX-License-Identifier: MIT
#include "tests/trainer/backend/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <vector>

#include "trainer/backend/tensor_access.h"

namespace flextrain::trainer {
namespace {

float* f32(Tensor t) { return TensorAccess::f32(t); }
double* f64(Tensor t) { return TensorAccess::f64(t); }
int32_t* i32(Tensor t) { return TensorAccess::i32(t); }
int64_t* i64(Tensor t) { return TensorAccess::i64(t); }

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Where row, head and element of a packed projection lie.
struct Packed {
  const AttentionShape& s;
  int64_t query(int64_t row, int64_t head, int64_t i) const {
    return row * s.qkv_width() + head * s.head_dim + i;
  }
  int64_t key(int64_t row, int64_t head, int64_t i) const {
    return row * s.qkv_width() + (s.heads + head * s.kv_heads / s.heads) * s.head_dim + i;
  }
  int64_t value(int64_t row, int64_t head, int64_t i) const {
    return key(row, head, i) + s.kv_heads * s.head_dim;
  }
  int64_t out(int64_t row, int64_t head, int64_t i) const {
    return row * s.out_width() + head * s.head_dim + i;
  }
};

class ReferenceBackend final : public Backend {
 public:
  std::string fingerprint() const override { return "reference"; }

  Result<Tensor> allocate(DType dtype, int64_t size) override {
    memory_.push_back(
        std::make_unique<double[]>(static_cast<size_t>(size * dtype_bytes(dtype) / 8 + 1)));
    bytes_ += size * dtype_bytes(dtype);
    return TensorAccess::make(memory_.back().get(), size, dtype);
  }
  int64_t allocated_bytes() const override { return bytes_; }
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
  std::span<float> communication_f32(Tensor t) override {
    return {f32(t), static_cast<size_t>(t.size())};
  }
  std::span<int64_t> communication_i64(Tensor t) override {
    return {i64(t), static_cast<size_t>(t.size())};
  }
  Status synchronize() override { return {}; }
  Event record_event() override { return {static_cast<double>(std::clock()) / CLOCKS_PER_SEC}; }
  double seconds_between(Event begin, Event end) override { return end.seconds - begin.seconds; }

  void fill_zero(Tensor t) override {
    std::memset(TensorAccess::raw(t), 0, static_cast<size_t>(t.size() * dtype_bytes(t.dtype())));
  }
  void copy(Tensor to, Tensor from) override {
    std::memmove(TensorAccess::raw(to), TensorAccess::raw(from),
                 static_cast<size_t>(from.size() * dtype_bytes(from.dtype())));
  }
  void add(Tensor a, Tensor b, Tensor out) override {
    for (int64_t i = 0; i < out.size(); ++i) f32(out)[i] = f32(a)[i] + f32(b)[i];
  }

  void embedding_forward(Tensor table, Tensor tokens, Tensor out, int64_t width) override {
    for (int64_t r = 0; r < tokens.size(); ++r)
      for (int64_t i = 0; i < width; ++i) {
        const int64_t token = i32(tokens)[r];
        f32(out)[r * width + i] = token < 0 ? 0.0f : f32(table)[token * width + i];
      }
  }
  void embedding_backward(Tensor tokens, Tensor out_grad, Tensor table_grad,
                          int64_t width) override {
    for (int64_t r = 0; r < tokens.size(); ++r)
      for (int64_t i = 0; i < width; ++i)
        if (i32(tokens)[r] >= 0)
          f32(table_grad)[i32(tokens)[r] * width + i] += f32(out_grad)[r * width + i];
  }
  void embedding_fold(Tensor tokens, Tensor out_grad, Tensor accumulator, int64_t width,
                      const FoldParams& params, Tensor status) override {
    for (int64_t r = 0; r < tokens.size(); ++r)
      if (i32(tokens)[r] >= 0)
        fold(out_grad.slice(r * width, width), accumulator.slice(i32(tokens)[r] * width, width),
             params, false, status);
  }

  void rms_norm_forward(Tensor x, Tensor weight, Tensor y, Tensor inverse_rms, int64_t width,
                        float eps) override {
    for (int64_t r = 0; r < inverse_rms.size(); ++r) {
      const float* row = f32(x) + r * width;
      double mean = 0;
      for (int64_t i = 0; i < width; ++i) mean += double{row[i]} * row[i] / double(width);
      const double inverse = 1 / std::sqrt(mean + eps);
      f32(inverse_rms)[r] = static_cast<float>(inverse);
      for (int64_t i = 0; i < width; ++i)
        f32(y)[r * width + i] = static_cast<float>(row[i] * inverse * f32(weight)[i]);
    }
  }
  void rms_norm_backward(Tensor x, Tensor weight, Tensor inverse_rms, Tensor y_grad, Tensor x_grad,
                         Tensor weight_grad, int64_t width, bool accumulate) override {
    std::vector<double> sums(static_cast<size_t>(width));
    for (int64_t r = 0; r < inverse_rms.size(); ++r) {
      const double inverse = f32(inverse_rms)[r];
      const auto normed = [&](int64_t i) { return f32(x)[r * width + i] * inverse; };
      const auto grad = [&](int64_t i) { return double{f32(y_grad)[r * width + i]}; };
      double mean = 0;
      for (int64_t i = 0; i < width; ++i)
        mean += grad(i) * f32(weight)[i] * normed(i) / double(width);
      for (int64_t i = 0; i < width; ++i) {
        f32(x_grad)[r * width + i] +=
            static_cast<float>(inverse * (grad(i) * f32(weight)[i] - normed(i) * mean));
        sums[static_cast<size_t>(i)] += grad(i) * normed(i);
      }
    }
    for (int64_t i = 0; i < width; ++i)
      f32(weight_grad)[i] = static_cast<float>((accumulate ? f32(weight_grad)[i] : 0.0f) +
                                               sums[static_cast<size_t>(i)]);
  }

  void linear_forward(Tensor x, Tensor weight, Tensor y, const LinearShape& s) override {
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t o = 0; o < s.out; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < s.in; ++i)
          sum += double{f32(x)[r * s.in + i]} * f32(weight)[o * s.in + i];
        f32(y)[r * s.out + o] = static_cast<float>(sum);
      }
  }
  void linear_backward_input(Tensor y_grad, Tensor weight, Tensor x_grad,
                             const LinearShape& s) override {
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t i = 0; i < s.in; ++i) {
        double sum = 0;
        for (int64_t o = 0; o < s.out; ++o)
          sum += double{f32(y_grad)[r * s.out + o]} * f32(weight)[o * s.in + i];
        f32(x_grad)[r * s.in + i] = static_cast<float>(sum);
      }
  }
  void linear_backward_weight(Tensor y_grad, Tensor x, Tensor weight_grad, const LinearShape& s,
                              bool accumulate) override {
    for (int64_t o = 0; o < s.out; ++o)
      for (int64_t i = 0; i < s.in; ++i) {
        float& grad = f32(weight_grad)[o * s.in + i];
        double sum = accumulate ? grad : 0.0;
        for (int64_t r = 0; r < s.rows; ++r)
          sum += double{f32(y_grad)[r * s.out + o]} * f32(x)[r * s.in + i];
        grad = static_cast<float>(sum);
      }
  }

  void rope(Tensor qkv, Tensor cosine, Tensor sine, const AttentionShape& s,
            bool inverse) override {
    const int64_t half = s.head_dim / 2;
    for (int64_t r = 0; r < s.rows(); ++r)
      for (int64_t head = 0; head < s.heads + s.kv_heads; ++head)
        for (int64_t i = 0; i < half; ++i) {
          const double c = f32(cosine)[r % s.length * half + i];
          const double d = f32(sine)[r % s.length * half + i] * (inverse ? -1.0 : 1.0);
          float& a = f32(qkv)[r * s.qkv_width() + head * s.head_dim + i];
          float& b = f32(qkv)[r * s.qkv_width() + head * s.head_dim + half + i];
          const double x = a, y = b;
          a = static_cast<float>(x * c - y * d);
          b = static_cast<float>(x * d + y * c);
        }
  }

  void attention_forward(Tensor qkv, Tensor out, Tensor log_sum, const AttentionShape& s) override {
    const Packed at{s};
    for_each_query(s, [&](int64_t first, int64_t row, int64_t head) {
      const std::vector<double> p = probabilities(f32(qkv), s, first, row, head);
      f32(log_sum)[(first / s.length * s.heads + head) * s.length + row - first] =
          static_cast<float>(p.back());
      for (int64_t i = 0; i < s.head_dim; ++i) {
        double sum = 0;
        for (int64_t k = first; k <= row; ++k)
          sum += p[static_cast<size_t>(k - first)] * f32(qkv)[at.value(k, head, i)];
        f32(out)[at.out(row, head, i)] = static_cast<float>(sum);
      }
    });
  }

  void attention_backward(Tensor qkv, Tensor, Tensor, Tensor out_grad, Tensor qkv_grad,
                          const AttentionShape& s) override {
    const Packed at{s};
    const float *in = f32(qkv), *grad = f32(out_grad);
    const double scale = 1 / std::sqrt(double(s.head_dim));
    std::vector<double> sums(static_cast<size_t>(qkv_grad.size()));
    const auto sum_at = [&](int64_t i) -> double& { return sums[static_cast<size_t>(i)]; };
    for_each_query(s, [&](int64_t first, int64_t row, int64_t head) {
      const std::vector<double> p = probabilities(in, s, first, row, head);
      const auto p_grad = [&](int64_t k) {
        double sum = 0;
        for (int64_t i = 0; i < s.head_dim; ++i)
          sum += double{grad[at.out(row, head, i)]} * in[at.value(k, head, i)];
        return sum;
      };
      double mean = 0;
      for (int64_t k = first; k <= row; ++k) mean += p[static_cast<size_t>(k - first)] * p_grad(k);
      for (int64_t k = first; k <= row; ++k) {
        const double probability = p[static_cast<size_t>(k - first)];
        const double score_grad = probability * (p_grad(k) - mean) * scale;
        for (int64_t i = 0; i < s.head_dim; ++i) {
          sum_at(at.query(row, head, i)) += score_grad * in[at.key(k, head, i)];
          sum_at(at.key(k, head, i)) += score_grad * in[at.query(row, head, i)];
          sum_at(at.value(k, head, i)) += probability * grad[at.out(row, head, i)];
        }
      }
    });
    for (int64_t i = 0; i < qkv_grad.size(); ++i) f32(qkv_grad)[i] = static_cast<float>(sum_at(i));
  }

  void swiglu_forward(Tensor gate_up, Tensor activated, int64_t width) override {
    for (int64_t r = 0; r < activated.size() / width; ++r)
      for (int64_t i = 0; i < width; ++i) {
        const double g = f32(gate_up)[r * 2 * width + i], u = f32(gate_up)[(2 * r + 1) * width + i];
        f32(activated)[r * width + i] = static_cast<float>(g * sigmoid(g) * u);
      }
  }
  void swiglu_backward(Tensor gate_up, Tensor activated_grad, Tensor gate_up_grad, Tensor activated,
                       int64_t width) override {
    swiglu_forward(gate_up, activated, width);
    for (int64_t r = 0; r < activated.size() / width; ++r)
      for (int64_t i = 0; i < width; ++i) {
        const double g = f32(gate_up)[r * 2 * width + i], u = f32(gate_up)[(2 * r + 1) * width + i];
        const double d = f32(activated_grad)[r * width + i], s = sigmoid(g);
        f32(gate_up_grad)[r * 2 * width + i] = static_cast<float>(d * u * (s + g * s * (1 - s)));
        f32(gate_up_grad)[(2 * r + 1) * width + i] = static_cast<float>(d * g * s);
      }
  }

  void softmax_cross_entropy(Tensor logits, Tensor targets, Tensor row_loss, int64_t vocab,
                             float grad_scale, bool want_grad) override {
    for (int64_t r = 0; r < targets.size(); ++r) {
      float* row = f32(logits) + r * vocab;
      const int64_t target = i32(targets)[r];
      const double top = *std::max_element(row, row + vocab);
      double sum = 0;
      for (int64_t i = 0; i < vocab; ++i) sum += std::exp(row[i] - top);
      f64(row_loss)[r] = target < 0 ? 0 : std::log(sum) + top - row[target];
      if (!want_grad) continue;
      for (int64_t i = 0; i < vocab; ++i)
        row[i] =
            target < 0
                ? 0.0f
                : static_cast<float>((std::exp(row[i] - top) / sum - (i == target)) * grad_scale);
    }
  }

  void fold(Tensor gradient, Tensor accumulator, const FoldParams& params, bool first,
            Tensor status) override {
    for (int64_t i = 0; i < gradient.size(); ++i) {
      const double x = std::ldexp(double{f32(gradient)[i]}, params.scale);
      const bool fits = std::fabs(x) < std::ldexp(1.0, params.limit_exponent);
      if (!fits)
        i64(status)[0] = std::max(
            i64(status)[0], std::isfinite(f32(gradient)[i]) ? kFoldSaturated : kFoldNotFinite);
      i64(accumulator)[i] =
          (first ? 0 : i64(accumulator)[i]) + (fits ? static_cast<int64_t>(std::nearbyint(x)) : 0);
    }
  }
  void sum_of_squares(Tensor values, int scale, Tensor sum) override {
    long double total = 0;
    for (int64_t i = 0; i < values.size(); ++i) {
      const long double v = values.dtype() == DType::kInt64
                                ? std::ldexp(static_cast<long double>(i64(values)[i]), -scale)
                                : static_cast<long double>(f32(values)[i]);
      total += v * v;
    }
    f64(sum)[0] = static_cast<double>(total);
  }
  void adamw(Tensor weight, Tensor first_moment, Tensor second_moment, Tensor gradient,
             const AdamParams& p) override {
    for (int64_t i = 0; i < weight.size(); ++i) {
      const double raw =
          gradient.dtype() == DType::kInt64 ? double(i64(gradient)[i]) : double{f32(gradient)[i]};
      const double g = raw * p.grad_scale;
      float &w = f32(weight)[i], &m = f32(first_moment)[i], &v = f32(second_moment)[i];
      m = static_cast<float>(p.beta1 * double{m} + (1 - double{p.beta1}) * g);
      v = static_cast<float>(p.beta2 * double{v} + (1 - double{p.beta2}) * g * g);
      const double update =
          double{m} * p.correction1 / (std::sqrt(double{v} * p.correction2) + p.eps);
      w = static_cast<float>(w - p.learning_rate * (update + double{p.weight_decay} * w));
    }
  }

 private:
  template <typename Visit>
  static void for_each_query(const AttentionShape& s, Visit&& visit) {
    for (int64_t first = 0; first < s.rows(); first += s.length)
      for (int64_t row = first; row < first + s.length; ++row)
        for (int64_t head = 0; head < s.heads; ++head) visit(first, row, head);
  }
  // Softmax over keys first … row; the last element is the log of the sum.
  static std::vector<double> probabilities(const float* qkv, const AttentionShape& s, int64_t first,
                                           int64_t row, int64_t head) {
    const Packed at{s};
    std::vector<double> p;
    for (int64_t k = first; k <= row; ++k) {
      double score = 0;
      for (int64_t i = 0; i < s.head_dim; ++i)
        score += double{qkv[at.query(row, head, i)]} * qkv[at.key(k, head, i)];
      p.push_back(score / std::sqrt(double(s.head_dim)));
    }
    const double top = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& score : p) sum += score = std::exp(score - top);
    for (double& score : p) score /= sum;
    p.push_back(std::log(sum) + top);
    return p;
  }

  std::vector<std::unique_ptr<double[]>> memory_;
  int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace flextrain::trainer
