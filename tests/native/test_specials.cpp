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
void check_each_and_together(const OpInfo& op, Pass pass, DType dtype,
                             const std::vector<double>& attributes) {
  const std::vector<long double> values = special_values(dtype);
  for (const long double gradient : {1.0L, -2.0L}) {
    check_accuracy(op, pass, pass_inputs(pass, buffer_of(dtype, values), gradient), attributes);
    for (const long double value : values) {
      // 37 is two vectors of the widest ISA and a rest.
      const Buffer x = buffer_of(dtype, std::vector<long double>(37, value));
      check_accuracy(op, pass, pass_inputs(pass, x, gradient), attributes);
    }
  }
}

}  // namespace

TEST_SUITE("kernel") {
  TEST_CASE("special inputs give the reference's values") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      for (const auto& attributes : reference_of(op).attribute_sets) {
        check_each_and_together(op, pass, dtype, attributes);
      }
    });
  }

  TEST_CASE("special gradients give the reference's values") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (pass == Pass::forward) return;
      const Format& format = format_of(dtype);
      const Buffer x = buffer_of(dtype, {-3, -0.5L, 0.25L, 1, 4});
      for (const long double gradient :
           {0.0L, -0.0L, format.smallest_normal(), format.largest() / 4, -format.largest() / 4,
            infinity, -infinity, not_a_number}) {
        const std::vector<Buffer> inputs = pass_inputs(pass, x, 1);
        for (std::size_t k = 0; k + 1 < inputs.size(); ++k) {
          std::vector<Buffer> changed = inputs;
          changed[k] = pass_inputs(Pass::backward, x, gradient)[0];
          check_accuracy(op, pass, changed, attribute_sets(op).front());
        }
      }
    });
  }
}

}  // namespace myops::tests
