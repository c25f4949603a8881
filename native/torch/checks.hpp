// SPDX-License-Identifier: Apache-2.0
// The one place that judges what a caller passes to a torch operator.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string_view>

#include "myops/kernels.hpp"

namespace myops::torch_glue {

/// The dtype as Python prints it, "int64".
inline std::string_view dtype_text(const at::Tensor& tensor) {
  return c10::getDtypeNames(tensor.scalar_type()).first;
}

/// The storage type, or nothing for a dtype the kernels do not have.
inline std::optional<DType> dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kDouble: return DType::f64;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    default: return std::nullopt;
  }
}

/// TypeError unless `tensor` is a strided tensor of a supported floating-point dtype.
inline void check_tensor(const OpInfo& op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(tensor.defined(), "[", op.torch_name, "] ", name,
                   " should be a tensor. Received an undefined tensor. Pass a defined one.");
  TORCH_CHECK_TYPE(dtype_of(tensor).has_value(), "[", op.torch_name, "] ", name,
                   " should be a floating-point tensor (float32, float64, float16 or bfloat16). "
                   "Received ",
                   dtype_text(tensor), ". Convert it, for instance with .float().");
  TORCH_CHECK_TYPE(tensor.layout() == at::kStrided, "[", op.torch_name, "] ", name,
                   " should be a dense tensor. Received layout ", tensor.layout(),
                   ". Convert it with .to_dense().");
}

/// Whether `tensor` has the shape, dtype, layout and device of `reference`.
inline bool matches(const at::Tensor& tensor, const at::Tensor& reference) {
  return tensor.defined() && tensor.scalar_type() == reference.scalar_type() &&
         tensor.device() == reference.device() && tensor.layout() == reference.layout() &&
         tensor.sym_sizes() == reference.sym_sizes();
}

/// Whether `tensor` can be broadcast to the shape of `reference`.
inline bool expands_to(const at::Tensor& tensor, const at::Tensor& reference) {
  return tensor.defined() && at::is_expandable_to(tensor.sym_sizes(), reference.sym_sizes());
}

/// ValueError or TypeError unless `tensor` has the dtype and device of `reference`, and its shape
/// or where `broadcasts` one that can be broadcast to it.
inline void check_matches(const OpInfo& op, const char* name, const at::Tensor& tensor,
                          const char* reference_name, const at::Tensor& reference,
                          bool broadcasts) {
  check_tensor(op, name, tensor);
  TORCH_CHECK_TYPE(tensor.scalar_type() == reference.scalar_type(), "[", op.torch_name, "] ", name,
                   " should have the dtype of ", reference_name, ", ", dtype_text(reference),
                   ". Received ", dtype_text(tensor), ". Convert one of them.");
  TORCH_CHECK_VALUE(!broadcasts || expands_to(tensor, reference), "[", op.torch_name, "] ", name,
                    " should have the shape of ", reference_name, ", ", reference.sym_sizes(),
                    ", or one that can be broadcast to it: sizes equal or 1, aligned at the last "
                    "dim. Received ",
                    tensor.sym_sizes(), ". Reshape it first.");
  TORCH_CHECK_VALUE(broadcasts || tensor.sym_sizes() == reference.sym_sizes(), "[", op.torch_name,
                    "] ", name, " should have the shape of ", reference_name, ", ",
                    reference.sym_sizes(), ". Received ", tensor.sym_sizes(),
                    ". Expand or reshape it first.");
  TORCH_CHECK_VALUE(tensor.device() == reference.device(), "[", op.torch_name, "] ", name,
                    " should be on the device of ", reference_name, ", ", reference.device(),
                    ". Received ", tensor.device(), ". Move one of them with .to().");
}

/// TypeError or ValueError unless `out` has the dtype and device of `reference`.
inline void check_out(const OpInfo& op, const char* name, const at::Tensor& out,
                      const char* reference_name, const at::Tensor& reference) {
  TORCH_CHECK_TYPE(out.scalar_type() == reference.scalar_type(), "[", op.torch_name, "] ", name,
                   " should have the dtype of ", reference_name, ", ", dtype_text(reference),
                   ". Received ", dtype_text(out), ". Allocate it with empty_like.");
  TORCH_CHECK_VALUE(out.device() == reference.device(), "[", op.torch_name, "] ", name,
                    " should be on the device of ", reference_name, ", ", reference.device(),
                    ". Received ", out.device(), ". Allocate it with empty_like.");
}

/// ValueError unless the attributes are usable; RuntimeError for a bad MYOPS_ISA.
inline void check_call(const OpInfo& op, const double* attributes) {
  const Status status = myops::check_attributes(op, attributes);
  TORCH_CHECK_VALUE(status.ok(), status.message());
  static const Status isa = isa_status();
  TORCH_CHECK(isa.ok(), isa.message());
}

}  // namespace myops::torch_glue
