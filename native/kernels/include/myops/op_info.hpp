// SPDX-License-Identifier: Apache-2.0
// What an operator is called and takes. Every back end (torch schema, ONNX Runtime op, build info)
// is generated from these records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// The namespace of the operators in torch and their domain in ONNX. Projects of their own define
// another one for their copies of torch library and plugin.
#ifndef MYOPS_NAMESPACE
#define MYOPS_NAMESPACE "myops"
#endif

namespace myops {

/// Storage type of a tensor. f16 and bf16 compute in f32 and round once (nearest-even).
enum class DType : std::uint8_t { f32, f64, f16, bf16 };
inline constexpr std::size_t dtype_count = 4;

/// Size of one element in bytes.
constexpr std::size_t element_size(DType dtype) noexcept {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2;
}

/// "float32", "float64", "float16" or "bfloat16".
constexpr const char* dtype_name(DType dtype) noexcept {
  constexpr const char* names[dtype_count] = {"float32", "float64", "float16", "bfloat16"};
  return names[static_cast<std::size_t>(dtype)];
}

/// Which function of an operator with N inputs is computed.
///   forward          inputs (x_1..x_N)                  -> y
///   backward         inputs (g, x_1..x_N)               -> d<g, y>/dx_i
///   double_backward  inputs (h_1..h_N, g, x_1..x_N)     -> d<h, backward>/dx_i
enum class Pass : std::uint8_t { forward, backward, double_backward };
inline constexpr std::size_t pass_count = 3;

/// A scalar parameter fixed per node, finite and at least `lowest`. The same name in torch, ONNX
/// and Python.
struct AttributeInfo {
  const char* name;
  double default_value;
  double lowest = -__builtin_inf();
};

struct OpInfo {
  const char* name;        // ONNX op type, "Swish"
  const char* torch_name;  // "swish"
  std::size_t index;       // position in its list
  std::size_t input_count;
  const char* const* input_names;
  std::size_t attribute_count;
  const AttributeInfo* attributes;
  std::size_t output_count;
  const char* const* output_names;
  // The forward pass takes inputs after the first that can be broadcast to the first one's shape:
  // sizes equal or 1, aligned at the last dim, as for ONNX's PRelu. The host does it: kernels get
  // every element of every input.
  bool broadcasts;
};

/// All elementwise operators, in the order of the op list. norm.hpp has the row-wise ones.
struct OpList {
  const OpInfo* first;
  std::size_t count;
  const OpInfo* begin() const noexcept { return first; }
  const OpInfo* end() const noexcept { return first + count; }
};
OpList ops() noexcept;

/// The elementwise operator with this ONNX name, or null.
const OpInfo* find_op(std::string_view name) noexcept;

}  // namespace myops
