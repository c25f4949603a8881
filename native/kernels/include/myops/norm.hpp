// SPDX-License-Identifier: Apache-2.0
// Row-wise normalization on the CPU. Like the elementwise kernels: no state, no threads, no
// allocation, no exception; the host splits the rows and owns the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "myops/kernels.hpp"
#include "myops/op_info.hpp"

namespace myops {

/// The normalization operators. Their last input is the weight, of the shape of a row; the others
/// are rows.
///   RMSNorm     (x, weight)            -> y
///   AddRMSNorm  (x, residual, weight)  -> y, sum = x + residual
OpList norm_ops() noexcept;

/// The normalization with this ONNX name, or null.
const OpInfo* find_norm(std::string_view name) noexcept;

/// Attributes a normalization can have.
inline constexpr std::size_t most_norm_attributes = 8;

/// A forward call over `rows` rows of `width` contiguous elements. Where `residual` is given, its
/// sum with x goes to `sum`, rounded to the storage type, and y is the norm of that. Outputs may be
/// the same memory as x or residual, or disjoint from them; y and sum are disjoint.
struct NormForward {
  const void* x;
  const void* residual;  // or null
  const void* weight;
  void* y;
  void* sum;  // null where residual is
  std::int64_t rows;
  std::int64_t width;
  double attributes[most_norm_attributes];  // in the order of the operator's OpInfo
};

/// A backward call. `weight_grad` has `width` elements of the compute type (double for f64, else
/// float), to which the rows' share is added: a host that splits the rows gives each part its own
/// and sums them.
struct NormBackward {
  const void* grad;
  const void* x;
  const void* weight;
  void* x_grad;  // may be the same memory as grad or x
  void* weight_grad;
  std::int64_t rows;
  std::int64_t width;
  double attributes[most_norm_attributes];  // in the order of the operator's OpInfo
};

struct NormKernels {
  void (*forward)(const NormForward& call);
  void (*backward)(const NormBackward& call);
};

/// The kernels of one of norm_ops() for this machine, or for the ISA named by the environment
/// variable MYOPS_ISA.
NormKernels norm_kernels(const OpInfo& op, DType dtype) noexcept;

/// Those of one named ISA, or nulls when this machine or this build does not have it.
NormKernels norm_kernels_for_isa(const char* isa, const OpInfo& op, DType dtype) noexcept;

/// How a host splits rows: `tasks` ranges of `grain` rows, the last one shorter. One task where the
/// elements are too few, as for `plan_tasks`.
TaskPlan plan_rows(std::int64_t rows, std::int64_t width, std::int64_t max_tasks) noexcept;

}  // namespace myops
