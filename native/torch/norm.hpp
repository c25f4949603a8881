// SPDX-License-Identifier: Apache-2.0
// The normalizations in torch: kernels over tensors, and their registration with derivatives.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <initializer_list>
#include <tuple>

#include "checks.hpp"
#include "myops/norm.hpp"

namespace myops::torch_glue {

using TensorPair = std::tuple<at::Tensor, at::Tensor>;

inline const OpInfo& norm_info(NormIndex index) {
  return *(norm_ops().begin() + static_cast<std::size_t>(index));
}

/// Refuses outputs that overlap each other, the weight, or a part of one of the `rows`: the same
/// memory as a whole is in place, and right.
void check_overlap(std::initializer_list<const at::Tensor*> outs,
                   std::initializer_list<const at::Tensor*> rows, const at::Tensor& weight);

// Checked calls, by device. See NormForward and NormBackward in myops/norm.hpp.
#define MYOPS_NORM_CALLS                                                                           \
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);                  \
  void rms_norm_out(const at::Tensor& x, const at::Tensor& weight, double eps,                     \
                    const at::Tensor& out);                                                        \
  TensorPair rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,                        \
                               const at::Tensor& weight, double eps);                              \
  TensorPair add_rms_norm(const at::Tensor& x, const at::Tensor& residual,                         \
                          const at::Tensor& weight, double eps);                                   \
  void add_rms_norm_out(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, \
                        double eps, const at::Tensor& out_y, const at::Tensor& out_sum);

namespace norm_cpu {
MYOPS_NORM_CALLS
}
namespace norm_cuda {
MYOPS_NORM_CALLS
}
namespace norm_meta {
MYOPS_NORM_CALLS
}
#undef MYOPS_NORM_CALLS

/// Registers the operators of norm_ops() with all their kernels.
void define_norms(torch::Library& library);

}  // namespace myops::torch_glue
