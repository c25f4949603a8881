// SPDX-License-Identifier: Apache-2.0
// What MYOPS_CHECK_FINITE does in torch: results of CPU kernels are read once more.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace myops::torch_glue {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Reports the first element of `outputs` that is not finite, with the inputs' values there. An
/// input that was computed over is not known any more and is left out.
void watch(const std::string& name, const NamedTensors& inputs, const NamedTensors& outputs);

}  // namespace myops::torch_glue
