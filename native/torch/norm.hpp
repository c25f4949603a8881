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

/// A call of a normalization. `residual` is undefined where the operator has none.
struct NormArguments {
  const OpInfo& op;
  const at::Tensor& x;
  const at::Tensor& residual;
  const at::Tensor& weight;
  const double* attributes;

  bool adds() const { return op.input_count == 3; }
};

/// Results of a call, or where to write them. `sum` is undefined without a residual.
struct NormOuts {
  at::Tensor y;
  at::Tensor sum;
};

/// Refuses outputs that overlap each other, the weight, or a part of one of the rows: the same
/// memory as a whole is in place, and right.
void check_overlap(const NormOuts& outs, const NormArguments& call);

// Checked calls, by device. See NormForward and NormBackward in myops/norm.hpp. `backward` gives
// the gradients of x and weight, and is for operators without residual.
#define MYOPS_NORM_CALLS                                             \
  NormOuts forward(const NormArguments& call);                       \
  void forward_out(const NormArguments& call, const NormOuts& outs); \
  TensorPair backward(const at::Tensor& grad, const NormArguments& call);

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
