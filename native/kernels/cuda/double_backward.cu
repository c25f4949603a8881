// SPDX-License-Identifier: Apache-2.0
// The kernels of the second derivatives.
#include "cuda/elementwise.cuh"

namespace myops {
namespace {

#define MYOPS_ROW(Name, torch_name) MYOPS_CUDA_ROW(Name, Pass::double_backward)
constexpr CudaKernelFn table[op_count][dtype_count] = {MYOPS_ALL_OPS(MYOPS_ROW)};

}  // namespace

CudaKernelFn cuda_double_backward_kernel(const OpInfo& op, DType dtype) noexcept {
  return table[op.index][static_cast<std::size_t>(dtype)];
}

}  // namespace myops
