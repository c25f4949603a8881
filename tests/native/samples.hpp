// SPDX-License-Identifier: Apache-2.0
// Inputs for kernels, and calling kernels on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats.hpp"
#include "myops/kernels.hpp"
#include "references.hpp"

namespace myops::tests {

inline constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::double_backward};
inline constexpr DType dtypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

// Names as strings: doctest prints the address of a const char*.
std::string pass_name(Pass pass);

/// Calls `visit(op, pass, dtype)` for every kernel there is.
template <class Visit>
void for_each_kernel(Visit visit) {
  for (const OpInfo& op : ops()) {
    for (const Pass pass : passes) {
      for (const DType dtype : dtypes) visit(op, pass, dtype);
    }
  }
}

/// `count` bit patterns evenly spread over all of them, so that every exponent occurs equally
/// often; neighbours in the buffer are neighbours in value. `phase` picks other patterns.
Buffer spread_patterns(DType dtype, std::size_t count, std::uint64_t phase);

/// `count` numbers evenly spread over the interval.
Buffer spread_values(DType dtype, Interval interval, std::size_t count);

/// All patterns of a two-byte dtype.
Buffer all_patterns(DType dtype);

/// The numbers of `values`, rounded to the dtype.
Buffer buffer_of(DType dtype, const std::vector<long double>& values);

/// The inputs of a pass (order: Pass in op_info.hpp) for a one-input op at `x`. The gradients
/// change from element to element and are near 1: tiny ones would turn intermediate products
/// denormal, about which the kernels promise nothing in ulps.
std::vector<Buffer> pass_inputs(Pass pass, const Buffer& x);

/// The same with every gradient equal to `gradient`.
std::vector<Buffer> pass_inputs(Pass pass, const Buffer& x, long double gradient);

/// Runs a kernel over the whole buffers.
Buffer run(KernelFn kernel, const std::vector<Buffer>& inputs,
           const std::vector<double>& attributes);

/// Some attribute sets of the op for tests that are not about accuracy: the defaults and the
/// reference's.
std::vector<std::vector<double>> attribute_sets(const OpInfo& op);

/// "Swish backward float32 on v3 with {1.702}" for messages.
std::string describe(const OpInfo& op, Pass pass, DType dtype,
                     const std::vector<double>& attributes);

/// ", inputs 1 -3.5, got 2, expected 3 (bits ...)": element `index` for messages.
std::string describe_element(const std::vector<Buffer>& inputs, const Buffer& output,
                             std::size_t index);

}  // namespace myops::tests
