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

/// How many arrays a pass of `op` reads and writes.
std::size_t input_count(const OpInfo& op, Pass pass);
std::size_t output_count(const OpInfo& op, Pass pass);

/// Where input `input` of the op stands among the inputs of a pass: after the gradients.
std::size_t position(const OpInfo& op, Pass pass, std::size_t input);

/// The inputs of a pass with `x` for one input of the op. The gradients and the op's other inputs
/// change from element to element and are near 1: tiny ones would turn intermediate products
/// denormal, about which the kernels promise nothing in ulps.
std::vector<Buffer> pass_inputs(const OpInfo& op, Pass pass, const Buffer& x,
                                std::size_t input = 0);

/// The same with `others` in all elements of the gradients and of the op's other inputs.
std::vector<Buffer> pass_inputs_among(const OpInfo& op, Pass pass, const Buffer& x,
                                      long double others, std::size_t input = 0);

/// Addresses of element `begin` of each buffer, as kernels take them.
std::vector<const void*> addresses(const std::vector<Buffer>& inputs, std::size_t begin = 0);
std::vector<void*> addresses(std::vector<Buffer>& outputs, std::size_t begin = 0);

/// Runs a kernel over the whole buffers; returns its outputs.
std::vector<Buffer> run(const OpInfo& op, Pass pass, KernelFn kernel,
                        const std::vector<Buffer>& inputs, const std::vector<double>& attributes,
                        Placement placement = Placement::cache);

/// Elements `begin` to `begin + count` of each buffer, in memory of exactly that size.
std::vector<Buffer> parts(const std::vector<Buffer>& whole, std::size_t begin, std::size_t count);

/// Whether all elements of `piece` are those of `whole` from `begin` on.
bool is_part(const Buffer& whole, std::size_t begin, const Buffer& piece);

/// "Swish backward float32 on v3 with {1.702}" for messages.
std::string describe(const OpInfo& op, Pass pass, DType dtype,
                     const std::vector<double>& attributes);

/// ", inputs 1 -3.5, got 2, expected 3 (bits ...)": element `index` for messages.
std::string describe_element(const std::vector<Buffer>& inputs, const Buffer& output,
                             std::size_t index);

}  // namespace myops::tests
