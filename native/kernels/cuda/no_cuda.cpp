// SPDX-License-Identifier: Apache-2.0
// Stands in for the CUDA back end in a build without it.
#include "myops/cuda.hpp"

namespace myops {

Status cuda_status() noexcept {
  return Status::error(
      "[myops] a CUDA operator needs CUDA kernels. Received myops built without CUDA. Rebuild it "
      "where nvcc is found (pip install -C cmake.define.MYOPS_CUDA=ON .), or move the tensors to "
      "the "
      "CPU.");
}

CudaKernelFn cuda_kernel(const OpInfo&, Pass, DType) noexcept { return nullptr; }
CudaKernelFn cuda_forward_kernel(const OpInfo&, DType) noexcept { return nullptr; }
CudaKernelFn cuda_backward_kernel(const OpInfo&, DType) noexcept { return nullptr; }
CudaKernelFn cuda_double_backward_kernel(const OpInfo&, DType) noexcept { return nullptr; }

CudaNormKernels cuda_norm_kernels(const OpInfo&, DType) noexcept { return {nullptr, nullptr}; }

const char* cuda_architectures() noexcept { return ""; }

}  // namespace myops
