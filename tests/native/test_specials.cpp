// SPDX-License-Identifier: Apache-2.0
// Zeros, infinities, NaN, denormals and the largest numbers, for every kernel.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "accuracy.hpp"
#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

constexpr long double infinity = std::numeric_limits<long double>::infinity();
constexpr long double not_a_number = std::numeric_limits<long double>::quiet_NaN();

std::vector<long double> special_values(DType dtype) {
  const Format& format = format_of(dtype);
  const long double tiny = format.smallest_denormal();
  const long double normal = format.smallest_normal();
  std::vector<long double> values;
  for (const long double sign : {1.0L, -1.0L}) {
    for (const long double value : {0.0L, tiny, 3 * tiny, normal - tiny, normal, 1.0L,
                                    format.largest() / 2, format.largest(), infinity}) {
      values.push_back(sign * value);
    }
    values.push_back(std::copysign(not_a_number, sign));
  }
  return values;
}

// Both a block of its own, which may take the driver's fast path, and among others.
void check_each_and_together(const OpInfo& op, Pass pass, DType dtype, std::size_t input,
                             long double others, const std::vector<double>& attributes) {
  const std::vector<long double> values = special_values(dtype);
  check_accuracy(op, pass, pass_inputs_among(op, pass, buffer_of(dtype, values), others, input),
                 attributes);
  for (const long double value : values) {
    // 37 is two vectors of the widest ISA and a rest.
    const Buffer x = buffer_of(dtype, std::vector<long double>(37, value));
    check_accuracy(op, pass, pass_inputs_among(op, pass, x, others, input), attributes);
  }
}

}  // namespace

TEST_SUITE("kernel") {
  TEST_CASE("special inputs give the reference's values") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      for (const auto& attributes : attribute_sets(op)) {
        for (const long double others : {1.0L, -2.0L}) {
          check_each_and_together(op, pass, dtype, 0, others, attributes);
        }
        // Smaller than 1: products of the largest number would overflow on the way.
        for (std::size_t input = 1; input < op.input_count; ++input) {
          for (const long double others : {0.5L, -0.25L}) {
            check_each_and_together(op, pass, dtype, input, others, attributes);
          }
        }
      }
    });
  }

  TEST_CASE("pairs of special inputs give the reference's values") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      // Infinity times what only f64 can tell from zero is another value than infinity times zero.
      std::vector<long double> values;
      for (const long double value : special_values(dtype)) {
        const bool small = value != 0 && std::fabs(value) <= format_of(dtype).smallest_normal();
        if (!small) values.push_back(value);
      }
      std::vector<long double> first;
      std::vector<long double> second;
      for (const long double value : values) {
        first.insert(first.end(), values.size(), value);
        second.insert(second.end(), values.begin(), values.end());
      }
      for (std::size_t input = 1; input < op.input_count; ++input) {
        std::vector<Buffer> inputs = pass_inputs_among(op, pass, buffer_of(dtype, first), 1);
        inputs[position(op, pass, input)] = buffer_of(dtype, second);
        check_accuracy(op, pass, inputs, attribute_sets(op).front());
      }
    });
  }

  TEST_CASE("special gradients give the reference's values") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (pass == Pass::forward) return;
      const Format& format = format_of(dtype);
      const Buffer x = buffer_of(dtype, {-3, -0.5L, 0.25L, 1, 4});
      const std::vector<Buffer> inputs = pass_inputs_among(op, pass, x, 1);
      for (const long double gradient :
           {0.0L, -0.0L, format.smallest_normal(), format.largest() / 4, -format.largest() / 4,
            infinity, -infinity, not_a_number}) {
        for (std::size_t k = 0; k < position(op, pass, 0); ++k) {
          std::vector<Buffer> changed = inputs;
          changed[k] = buffer_of(dtype, std::vector<long double>(x.count(), gradient));
          check_accuracy(op, pass, changed, attribute_sets(op).front());
        }
      }
    });
  }
}

}  // namespace myops::tests
