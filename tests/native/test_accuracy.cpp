// SPDX-License-Identifier: Apache-2.0
// Every kernel against its reference on ordinary values.
#include <doctest/doctest.h>

#include "accuracy.hpp"
#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

bool is_half(DType dtype) { return element_size(dtype) == 2; }

}  // namespace

TEST_SUITE("kernel") {
  TEST_CASE("f32 and f64 are accurate on patterns spread over all exponents") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (is_half(dtype)) return;
      const auto& sets = reference_of(op).attribute_sets;
      // All sets of f32 together make 4 million patterns.
      const std::size_t count = dtype == DType::f32 ? (std::size_t(1) << 22) / sets.size()
                                                    : (std::size_t(1) << 20) / sets.size();
      std::uint64_t phase = 0;
      for (const auto& attributes : sets) {
        const Buffer x = spread_patterns(dtype, count, phase++ * 1021);
        check_accuracy(op, pass, pass_inputs(pass, x), attributes);
      }
    });
  }

  TEST_CASE("f32 and f64 are accurate where the function bends") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (is_half(dtype)) return;
      const OpReference& reference = reference_of(op);
      for (const auto& attributes : reference.attribute_sets) {
        const Interval bend = reference.bend(dtype, rounded_attributes(dtype, attributes).data());
        const Buffer x = spread_values(dtype, bend, 100003);
        check_accuracy(op, pass, pass_inputs(pass, x), attributes);
      }
    });
  }

  TEST_CASE("halves are rounded once: all patterns") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (!is_half(dtype)) return;
      for (const auto& attributes : reference_of(op).attribute_sets) {
        check_accuracy(op, pass, pass_inputs(pass, all_patterns(dtype), 1), attributes);
      }
    });
  }
}

}  // namespace myops::tests
