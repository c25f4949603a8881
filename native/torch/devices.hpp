// SPDX-License-Identifier: Apache-2.0
// Where a pass runs: on torch's CPU threads, or on the current CUDA stream of the tensors' device.
#pragma once

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "flat.hpp"
#include "myops/cuda.hpp"
#include "myops/finite.hpp"

namespace myops::torch_glue {

/// RuntimeError with the kernel library's sentence.
inline void check_status(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

/// The device's current stream as CUDA knows it. Device-generic, so that a build against a CPU-only
/// torch serves a GPU machine.
inline void* current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStream(device).native_handle();
}

struct Cpu {
  static bool checks_finite() { return myops::checks_finite(); }

  template <std::size_t n, std::size_t m>
  static void run(const OpInfo& op, Pass pass, const TensorRefs<n>& inputs,
                  const std::array<at::Tensor, m>& outputs, const double* attributes) {
    torch_glue::run<n, m>(cpu_kernel(op, pass, *dtype_of(outputs[0])), inputs, outputs, attributes);
  }
};

struct Cuda {
  // It would wait for the device, which a captured graph cannot.
  static bool checks_finite() { return false; }

  template <std::size_t n, std::size_t m>
  static void run(const OpInfo& op, Pass pass, const TensorRefs<n>& inputs,
                  const std::array<at::Tensor, m>& outputs, const double* attributes) {
    check_status(cuda_status());
    const c10::DeviceGuard guard(outputs[0].device());
    // As flat memory in the order of the first output; others are copied once.
    std::array<at::Tensor, m> made;
    for (std::size_t i = 0; i < m; ++i) {
      const bool direct =
          i == 0 ? outputs[0].is_non_overlapping_and_dense() : same_order(outputs[i], made[0]);
      made[i] = direct ? outputs[i] : at::empty_like(i == 0 ? outputs[0] : made[0]);
    }
    std::array<at::Tensor, n> kept;
    const void* from[n];
    void* to[m];
    for (std::size_t i = 0; i < n; ++i) {
      kept[i] =
          same_order(*inputs[i], made[0]) ? *inputs[i] : at::empty_like(made[0]).copy_(*inputs[i]);
      from[i] = kept[i].const_data_ptr();
    }
    for (std::size_t i = 0; i < m; ++i) to[i] = made[i].mutable_data_ptr();
    const CudaKernelFn kernel = cuda_kernel(op, pass, *dtype_of(outputs[0]));
    check_status(
        kernel({from, to, outputs[0].numel(), attributes, current_stream(outputs[0].device())}));
    for (std::size_t i = 0; i < m; ++i) {
      if (!made[i].is_same(outputs[i])) outputs[i].copy_(made[i]);
    }
  }
};

}  // namespace myops::torch_glue
