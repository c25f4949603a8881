// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels, for hosts that own device, stream and memory. No CUDA header is needed.
#pragma once

#include "myops/broadcast.hpp"
#include "myops/kernels.hpp"
#include "myops/norm.hpp"

namespace myops {

/// One call on the current device. Pointers are device pointers, aligned to one element; the rules
/// on aliasing are those of KernelFn. `stream` is a cudaStream_t. `broadcasts` has an entry per
/// input and is for the forward pass of operators with that trait; null where every input is read
/// as it lies in memory.
struct CudaCall {
  const void* const* inputs;
  void* const* outputs;
  std::int64_t count;
  const double* attributes;
  void* stream;
  const Broadcast* broadcasts = nullptr;
};

/// Launches and returns without waiting. An empty call launches nothing. The error names the place
/// and CUDA's error.
using CudaKernelFn = Status (*)(const CudaCall& call);

/// The kernel for the current device's architecture, or null in a build without CUDA. Check
/// cuda_status() once before the first call.
CudaKernelFn cuda_kernel(const OpInfo& op, Pass pass, DType dtype) noexcept;

/// The same for one pass: a host that only infers links the forward kernels alone.
CudaKernelFn cuda_forward_kernel(const OpInfo& op, DType dtype) noexcept;
CudaKernelFn cuda_backward_kernel(const OpInfo& op, DType dtype) noexcept;
CudaKernelFn cuda_double_backward_kernel(const OpInfo& op, DType dtype) noexcept;

/// The normalizations on device pointers; see NormForward and NormBackward. `weight_grad` of a
/// backward call has `parts` rows, zeroed by the host, which sums them after the call; with more
/// parts than the device runs blocks at a time nothing is gained.
struct CudaNormKernels {
  Status (*forward)(const NormForward& call, void* stream);
  Status (*backward)(const NormBackward& call, std::int64_t parts, void* stream);
};

/// The kernels of one of norm_ops(), or nulls in a build without CUDA.
CudaNormKernels cuda_norm_kernels(const OpInfo& op, DType dtype) noexcept;

/// The architectures this build was asked for, as CMake spells them ("80-real;90"); empty without
/// CUDA.
const char* cuda_architectures() noexcept;

}  // namespace myops
