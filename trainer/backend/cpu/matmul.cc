// SPDX-License-Identifier: MIT
#include "trainer/backend/cpu/matmul.h"

#include <omp.h>

#include <cstdlib>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

namespace flextrain::trainer {
namespace {

std::string isa_name(dnnl_cpu_isa_t isa) {
  switch (isa) {
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("isa-{:#x}", static_cast<unsigned>(isa));
  }
}

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

}  // namespace

struct Matmul::Library {
  dnnl::engine engine;
  dnnl::stream stream;
  std::unique_ptr<void, FreeDeleter> scratch;  // shared by all products, grown as they are made
  size_t scratch_bytes = 0;
};

struct Matmul::Product {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratch;
};

Matmul::Matmul() = default;
Matmul::~Matmul() = default;

Status Matmul::open() {
  try {
    omp_set_num_threads(1);
    auto library = std::make_unique<Library>();
    library->engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
    library->stream = dnnl::stream(library->engine);
    library_ = std::move(library);
    return {};
  } catch (const std::exception& error) {
    return internal_error("oneDNN does not start: {}", error.what());
  }
}

Result<Matmul::Product*> Matmul::product(const MatmulShape& shape) {
  if (auto found = products_.find(shape); found != products_.end()) return found->second.get();
  using dnnl::memory;
  try {
    const auto type = memory::data_type::f32;
    const memory::desc a({shape.m, shape.k}, type, memory::dims{shape.a_row, shape.a_column});
    const memory::desc b({shape.k, shape.n}, type, memory::dims{shape.b_row, shape.b_column});
    const memory::desc c({shape.m, shape.n}, type, memory::dims{shape.c_row, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes,
                                                   library_->engine);
    auto product = std::make_unique<Product>();
    product->primitive = dnnl::matmul(description);
    product->a = memory(a, library_->engine, DNNL_MEMORY_NONE);
    product->b = memory(b, library_->engine, DNNL_MEMORY_NONE);
    product->c = memory(c, library_->engine, DNNL_MEMORY_NONE);
    product->scratch = memory(description.scratchpad_desc(), library_->engine, DNNL_MEMORY_NONE);
    const size_t bytes = (description.scratchpad_desc().get_size() + 63) / 64 * 64;
    if (bytes > library_->scratch_bytes) {
      library_->scratch.reset(std::aligned_alloc(64, bytes));
      if (!library_->scratch) {
        library_->scratch_bytes = 0;
        return resource_exhausted("no memory for {} bytes of oneDNN scratch space", bytes);
      }
      library_->scratch_bytes = bytes;
    }
    Product* result = product.get();
    products_.emplace(shape, std::move(product));
    return result;
  } catch (const std::exception& error) {
    return internal_error("oneDNN makes no product of {}x{} and {}x{}: {}", shape.m, shape.k,
                          shape.k, shape.n, error.what());
  }
}

Status Matmul::run(const MatmulShape& shape, const float* a, const float* b, float* c) {
  ASSIGN_OR_RETURN(Product * product, this->product(shape));
  // The C calls take the arguments from the stack; the C++ ones would build a map per call.
  dnnl_memory_set_data_handle(product->a.get(), const_cast<float*>(a));
  dnnl_memory_set_data_handle(product->b.get(), const_cast<float*>(b));
  dnnl_memory_set_data_handle(product->c.get(), c);
  dnnl_memory_set_data_handle(product->scratch.get(), library_->scratch.get());
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, product->a.get()},
                                       {DNNL_ARG_WEIGHTS, product->b.get()},
                                       {DNNL_ARG_DST, product->c.get()},
                                       {DNNL_ARG_SCRATCHPAD, product->scratch.get()}};
  const dnnl_status_t code =
      dnnl_primitive_execute(product->primitive.get(), library_->stream.get(), 4, arguments);
  if (code != dnnl_success)
    return internal_error("oneDNN product {}x{}x{} failed with code {}", shape.m, shape.n, shape.k,
                          static_cast<int>(code));
  return {};
}

std::string onednn_fingerprint() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("onednn-{}.{}.{};{}", version->major, version->minor, version->patch,
                     isa_name(dnnl_get_effective_cpu_isa()));
}

}  // namespace flextrain::trainer
