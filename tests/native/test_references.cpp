// SPDX-License-Identifier: Apache-2.0
// The references themselves: an error in one would pass for an error of a kernel, or hide one.
#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

/// What the next pass differentiates: y, and the sum of the gradients. The gradients given are 1.
long double scalar(const OpReference& reference, const OpInfo& op, std::size_t pass,
                   const std::vector<long double>& at, const std::vector<long double>& attributes,
                   std::vector<Expected>& outputs) {
  const Pass which = passes[pass];
  std::vector<long double> in(input_count(op, which), 1);
  for (std::size_t k = 0; k < at.size(); ++k) in[position(op, which, k)] = at[k];
  outputs.assign(output_count(op, which), {});
  reference.formula[pass](in.data(), attributes.data(), outputs.data());
  long double sum = 0;
  for (const Expected& output : outputs) sum += output.value;
  return sum;
}

}  // namespace

TEST_CASE("every entry is of an op of the list and fits it") {
  for (const OpReference& reference : references()) {
    CAPTURE(std::string(reference.op));
    const OpInfo* op = find_op(reference.op);
    REQUIRE(op != nullptr);
    CHECK(find_reference(reference.op) == &reference);
    for (const auto& set : reference.attribute_sets) CHECK(set.size() == op->attribute_count);
  }
  CHECK(find_reference("NoSuchOp") == nullptr);
}

TEST_CASE("every op has attribute sets, the defaults first") {
  for (const OpInfo& op : ops()) {
    const auto sets = attribute_sets(op);
    REQUIRE(!sets.empty());
    for (const auto& set : sets) REQUIRE(set.size() == op.attribute_count);
    for (std::size_t i = 0; i < op.attribute_count; ++i) {
      CHECK(sets[0][i] == op.attributes[i].default_value);
    }
  }
}

TEST_SUITE("reference") {
  TEST_CASE("the derivatives of every reference match its differences") {
    for (const OpReference& reference : references()) {
      const OpInfo& op = *find_op(reference.op);
      for (const auto& set : reference.attribute_sets) {
        const std::vector<long double> attributes = rounded_attributes(DType::f64, set);
        const Interval bend = reference.bend(DType::f32, attributes.data());
        const long double unit = (bend.high - bend.low) / 256;
        const long double step = unit / 65536;
        std::vector<Expected> outputs;
        for (std::size_t pass = 1; pass < pass_count; ++pass) {
          for (long double x = bend.low; x < bend.high; x += unit) {
            for (std::size_t input = 0; input < op.input_count; ++input) {
              std::vector<long double> at(op.input_count, 1.25L);
              at[0] = x;
              const auto moved = [&](long double by) {
                std::vector<long double> there = at;
                there[input] += by;
                return scalar(reference, op, pass - 1, there, attributes, outputs);
              };
              const long double slope = (moved(step) - moved(-step)) / (2 * step);
              scalar(reference, op, pass, at, attributes, outputs);
              const long double derivative = outputs[input].value;
              const auto error = static_cast<double>(std::fabs(derivative - slope));
              // Truncation of the difference; y'' and y''' grow with powers of 1 / unit.
              const auto allowed = static_cast<double>(
                  1e-8L * (std::fabs(derivative) + (pass > 1 ? 1 / std::fabs(unit) : 1)));
              CHECK_MESSAGE(error <= allowed, std::string(op.name), " pass ", pass, " at ",
                            static_cast<double>(x));
            }
          }
        }
      }
    }
  }
}

}  // namespace myops::tests
