// SPDX-License-Identifier: Apache-2.0
// Every kernel against its reference on ordinary values.
#include <cmath>

#include <doctest/doctest.h>

#include "accuracy.hpp"
#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

bool is_half(DType dtype) { return element_size(dtype) == 2; }

/// For inputs other than the first: products with them would overflow on the way to a result that
/// does not.
Buffer within_range(Buffer x) {
  const long double limit = format_of(x.dtype()).largest() / 64;
  for (std::size_t i = 0; i < x.count(); ++i) {
    if (x.value(i) > limit || x.value(i) < -limit) x.set(i, 1);
  }
  return x;
}

void check_each_input(const OpInfo& op, Pass pass, const Buffer& x,
                      const std::vector<double>& attributes) {
  check_accuracy(op, pass, pass_inputs(op, pass, x), attributes);
  for (std::size_t input = 1; input < op.input_count; ++input) {
    check_accuracy(op, pass, pass_inputs(op, pass, within_range(x), input), attributes);
  }
}

/// The f64 outputs of a pass at `x`, or where input `input` of the op is moved by `by` from there.
/// The op's other inputs are -1.25, the gradients 1.
std::vector<Buffer> f64_outputs(const OpInfo& op, Pass pass, const Buffer& x, std::size_t input = 0,
                                long double by = 0) {
  std::vector<Buffer> inputs = pass_inputs_among(op, pass, x, 1);
  for (std::size_t k = 0; k < op.input_count; ++k) {
    Buffer& values = inputs[position(op, pass, k)];
    for (std::size_t i = 0; i < x.count(); ++i) {
      values.set(i, (k == 0 ? x.value(i) : -1.25L) + (k == input ? by : 0));
    }
  }
  return run(op, pass, cpu_kernel(op, pass, DType::f64), inputs, attribute_sets(op).front());
}

long double sum_at(const std::vector<Buffer>& outputs, std::size_t element) {
  long double sum = 0;
  for (const Buffer& output : outputs) sum += output.value(element);
  return sum;
}

}  // namespace

TEST_SUITE("kernel") {
  TEST_CASE("each f64 pass is the derivative of the one before") {
    constexpr long double step = 1e-4L;
    // Hits no corner that a function might have at a round number.
    const Buffer x = spread_values(DType::f64, {-20, 20}, 997);
    for (const OpInfo& op : ops()) {
      for (const Pass pass : {Pass::backward, Pass::double_backward}) {
        const auto before = static_cast<Pass>(static_cast<std::size_t>(pass) - 1);
        const std::vector<Buffer> derivatives = f64_outputs(op, pass, x);
        for (std::size_t input = 0; input < op.input_count; ++input) {
          const std::vector<Buffer> above = f64_outputs(op, before, x, input, step);
          const std::vector<Buffer> below = f64_outputs(op, before, x, input, -step);
          for (std::size_t i = 0; i < x.count(); ++i) {
            const auto slope =
                static_cast<double>((sum_at(above, i) - sum_at(below, i)) / (2 * step));
            const auto value = static_cast<double>(derivatives[input].value(i));
            CHECK_MESSAGE(std::fabs(value - slope) <= 1e-6 * (1 + std::fabs(value)),
                          describe(op, pass, DType::f64, {}), ", input ", input, " at ",
                          static_cast<double>(x.value(i)));
          }
        }
      }
    }
  }

  TEST_CASE("f32 and f64 are accurate on patterns spread over all exponents") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (is_half(dtype)) return;
      const auto sets = attribute_sets(op);
      // All sets of f32 together make 4 million patterns for an op with an entry.
      const int scale = (dtype == DType::f32 ? 22 : 20) - (find_reference(op.name) ? 0 : 4);
      const std::size_t count = (std::size_t(1) << scale) / sets.size();
      std::uint64_t phase = 0;
      for (const auto& attributes : sets) {
        check_each_input(op, pass, spread_patterns(dtype, count, phase++ * 1021), attributes);
      }
    });
  }

  TEST_CASE("f32 and f64 are accurate where the function bends") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (is_half(dtype)) return;
      for (const auto& attributes : attribute_sets(op)) {
        const Buffer x = spread_values(dtype, bend_of(op, dtype, attributes), 100003);
        check_each_input(op, pass, x, attributes);
      }
    });
  }

  TEST_CASE("halves are rounded once: all patterns") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (!is_half(dtype)) return;
      const Buffer x = all_patterns(dtype);
      for (const auto& attributes : attribute_sets(op)) {
        check_accuracy(op, pass, pass_inputs_among(op, pass, x, 1), attributes);
        if (op.input_count > 1) check_each_input(op, pass, x, attributes);
      }
    });
  }
}

}  // namespace myops::tests
