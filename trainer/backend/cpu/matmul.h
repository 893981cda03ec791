// SPDX-License-Identifier: MIT
// oneDNN matrix products with their primitives cached per shape. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/status.h"

namespace flextrain::trainer {

// C[m,n] = or += A[m,k] · B[k,n], float32. Element (i,j) of A lies at i·a_row + j·a_column, so a
// transposed matrix is one with its strides exchanged; C is row-major with row stride c_row.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 1;
  int64_t b_row = 0, b_column = 1;
  int64_t c_row = 0;
  bool accumulate = false;
  auto operator<=>(const MatmulShape&) const = default;
};

class Matmul {
 public:
  Matmul();
  ~Matmul();
  // Pins the library to one thread: bits would change with their number. kInternal on failure.
  Status open();
  // Makes the primitive at a shape's first use; no own heap allocation afterwards.
  Status run(const MatmulShape& shape, const float* a, const float* b, float* c);

 private:
  struct Library;
  struct Product;
  Result<Product*> product(const MatmulShape& shape);
  std::unique_ptr<Library> library_;
  std::map<MatmulShape, std::unique_ptr<Product>> products_;
};

// "onednn-2.6.3;avx512_core_bf16": the version and the instruction set oneDNN may use here
// (DNNL_MAX_CPU_ISA lowers it).
std::string onednn_fingerprint();

}  // namespace flextrain::trainer
