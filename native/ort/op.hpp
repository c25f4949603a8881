// SPDX-License-Identifier: Apache-2.0
// One OrtCustomOp per (operator, dtype, provider): the callbacks ONNX Runtime calls. Everything
// they need is in the OrtCustomOp itself or in the kernel, so sessions and threads share nothing.
#pragma once

#include <cstdint>

#include <onnxruntime_c_api.h>

#include "api_version.hpp"
#include "myops/kernels.hpp"

namespace myops::ort {

inline constexpr std::size_t max_inputs = 4;
inline constexpr std::size_t max_attributes = 8;

/// What a runtime offers.
struct Runtime {
  const OrtApi* api;
  int api_version;
  ShapeByReference shape_of;  // or null
};

enum class Provider : std::uint8_t { cpu, cuda };

/// What the callbacks need to know.
struct OpConfig {
  Runtime runtime;
  const OpInfo* info;
  DType dtype;
  Provider provider;
};

struct CustomOp : OrtCustomOp {
  OpConfig config;
};

/// Fills the callbacks that all operators share: names, types, shapes. The kernel's are missing.
void init_custom_op(CustomOp& op, const OpConfig& config) noexcept;

/// Fills the callbacks of an elementwise operator.
void init_elementwise_op(CustomOp& op, const OpConfig& config) noexcept;

/// Fills the callbacks of a normalization.
void init_norm_op(CustomOp& op, const OpConfig& config) noexcept;

}  // namespace myops::ort
