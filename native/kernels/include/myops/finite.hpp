// SPDX-License-Identifier: Apache-2.0
// For debugging: naming the first value that is not finite, where the environment variable
// MYOPS_CHECK_FINITE is set. A check reads every result once more, which costs about as much as
// computing it; without the variable there is one branch per call.
#pragma once

#include <cstdint>

#include "myops/op_info.hpp"

namespace myops {

/// Whether MYOPS_CHECK_FINITE is set to anything but "" or "0". Read once.
bool checks_finite() noexcept;

/// The index of the first NaN or infinity among `count` elements, or -1.
std::int64_t first_non_finite(const void* data, DType dtype, std::int64_t count) noexcept;

/// Element `index`, exactly.
double element_value(const void* data, DType dtype, std::int64_t index) noexcept;

/// Writes "message" and a line break to standard error, the first time it is called in this library
/// and never again: what follows a value that is not finite is not finite either.
void report_once(const char* message) noexcept;

}  // namespace myops
