// SPDX-License-Identifier: Apache-2.0
// The kernel of any pass. Apart from the tables, so that who asks for one pass links that one
// alone.
#include "myops/cuda.hpp"

namespace myops {

CudaKernelFn cuda_kernel(const OpInfo& op, Pass pass, DType dtype) noexcept {
  switch (pass) {
    case Pass::forward: return cuda_forward_kernel(op, dtype);
    case Pass::backward: return cuda_backward_kernel(op, dtype);
    case Pass::double_backward: return cuda_double_backward_kernel(op, dtype);
  }
  return nullptr;
}

}  // namespace myops
