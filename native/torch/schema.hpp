// SPDX-License-Identifier: Apache-2.0
// What the schemas of all kinds of operators have in common.
#pragma once

#include <sstream>
#include <string>

#include "myops/op_info.hpp"

namespace myops::torch_glue {

/// The attributes with their defaults: ", float beta=1.0".
inline std::string attribute_arguments(const OpInfo& op) {
  std::ostringstream text;
  text.precision(17);
  text << std::showpoint;
  for (std::size_t i = 0; i < op.attribute_count; ++i) {
    text << ", float " << op.attributes[i].name << "=" << op.attributes[i].default_value;
  }
  return text.str();
}

}  // namespace myops::torch_glue
