// SPDX-License-Identifier: Apache-2.0
#include "watch.hpp"

#include <c10/util/StringUtil.h>

#include "checks.hpp"
#include "myops/finite.hpp"

namespace myops::torch_glue {
namespace {

/// " x = inf, beta = 1", in the order of the inputs, at the output's element `index`.
std::string values_at(const NamedTensors& inputs, const at::Tensor& output, std::int64_t index) {
  std::string text;
  for (const auto& [name, tensor] : inputs) {
    if (tensor.is_alias_of(output)) continue;
    const bool fits = tensor.dim() <= output.dim() &&
                      tensor.sizes() == output.sizes().slice(output.dim() - tensor.dim());
    if (!fits) continue;
    const at::Tensor dense = tensor.expand(output.sizes()).contiguous();
    const double value = element_value(dense.const_data_ptr(), *dtype_of(dense), index);
    text += c10::str(text.empty() ? " from " : ", ", name, " = ", value);
  }
  return text;
}

}  // namespace

void watch(const std::string& name, const NamedTensors& inputs, const NamedTensors& outputs) {
  for (const auto& [output_name, output] : outputs) {
    const at::Tensor dense = output.contiguous();
    const void* data = dense.const_data_ptr();
    const DType dtype = *dtype_of(dense);
    const std::int64_t index = first_non_finite(data, dtype, dense.numel());
    if (index < 0) continue;
    const std::string text =
        c10::str("[", name, "] ", output_name, " should be finite (MYOPS_CHECK_FINITE). Received ",
                 element_value(data, dtype, index), " at element ", index, " of ", output.sizes(),
                 values_at(inputs, output, index), ". Look for what gives these values.");
    report_once(text.c_str());
    return;
  }
}

}  // namespace myops::torch_glue
