// SPDX-License-Identifier: Apache-2.0
// The normalizations of a list of operators that has none: norm_ops() is empty.
#include "op.hpp"

namespace myops::ort {

void init_norm_op(CustomOp&, const OpConfig&) noexcept {}

}  // namespace myops::ort
