// SPDX-License-Identifier: Apache-2.0
// The one checker of attribute values.
#include <cmath>

#include "myops/kernels.hpp"

namespace myops {

Status check_attributes(const OpInfo& op, const double* attributes) noexcept {
  for (std::size_t i = 0; i < op.attribute_count; ++i) {
    if (!std::isfinite(attributes[i])) {
      return Status::error("[%s] %s should be finite. Received %g. Pass a finite number.",
                           op.torch_name, op.attributes[i].name, attributes[i]);
    }
    if (attributes[i] < op.attributes[i].lowest) {
      return Status::error("[%s] %s should be at least %g. Received %g. Pass a larger number.",
                           op.torch_name, op.attributes[i].name, op.attributes[i].lowest,
                           attributes[i]);
    }
  }
  return {};
}

}  // namespace myops
