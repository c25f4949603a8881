// SPDX-License-Identifier: Apache-2.0
// Which memory kernels touch, and that a result depends on nothing but its own inputs.
#include <cstring>
#include <limits>

#include <doctest/doctest.h>

#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

constexpr std::size_t largest_size = 1000;
constexpr std::size_t offsets = 16;
constexpr std::size_t margin = 64;  // elements of sentinel around an output

// Around the vector widths and the driver's block.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all{255, 256, 257, 511, 512, 513, largest_size};
  for (std::size_t n = 0; n <= 67; ++n) all.push_back(n);
  return all;
}

/// Inputs at the bend of the function and everything around it, so that blocks differ in range.
std::vector<Buffer> mixed_inputs(const OpInfo& op, Pass pass, DType dtype, std::size_t count) {
  const Interval bend = bend_of(op, dtype, attribute_sets(op).front());
  return pass_inputs(op, pass, spread_values(dtype, {bend.low * 1.2L, bend.high * 1.2L}, count));
}

/// Every byte of the sentinel; as a number unlike any result.
Buffer sentinels(DType dtype, std::size_t count) {
  Buffer buffer(dtype, count);
  std::memset(buffer.data(), 0xa5, count * element_size(dtype));
  return buffer;
}

}  // namespace

TEST_SUITE("kernel") {
  TEST_CASE("tails and unaligned buffers: right values, nothing else written") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      const std::vector<double> attributes = attribute_sets(op).front();
      CAPTURE(describe(op, pass, dtype, attributes));
      const KernelFn kernel = cpu_kernel(op, pass, dtype);
      const std::vector<Buffer> inputs = mixed_inputs(op, pass, dtype, largest_size + offsets);
      const std::vector<Buffer> kept = inputs;
      const std::vector<Buffer> expected = run(op, pass, kernel, inputs, attributes);
      const Buffer untouched = sentinels(dtype, largest_size + offsets + 2 * margin);
      for (const std::size_t size : sizes()) {
        for (std::size_t offset = 0; offset < offsets; ++offset) {
          std::vector<Buffer> outputs(expected.size(), untouched);
          // Inputs and outputs differ in alignment.
          std::vector<std::size_t> begins;
          std::vector<void*> to;
          for (std::size_t k = 0; k < outputs.size(); ++k) {
            begins.push_back(margin + (offset * 7 + 3 + 5 * k) % offsets);
            to.push_back(outputs[k].at(begins[k]));
          }
          kernel(addresses(inputs, offset).data(), to.data(), static_cast<std::int64_t>(size),
                 attributes.data(), Placement::cache);
          for (std::size_t k = 0; k < outputs.size(); ++k) {
            bool right = true;
            for (std::size_t i = 0; i < outputs[k].count(); ++i) {
              const bool inside = i >= begins[k] && i < begins[k] + size;
              right = right &&
                      (inside ? same_element(outputs[k], i, expected[k], offset + i - begins[k])
                              : outputs[k].bits(i) == untouched.bits(i));
            }
            CHECK_MESSAGE(right, "size ", size, ", offset ", offset, ", output ", k);
          }
        }
      }
      CHECK(inputs == kept);
    });
  }

  TEST_CASE("buffers of the exact size: AddressSanitizer sees a read past the end") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      const std::vector<double> attributes = attribute_sets(op).front();
      CAPTURE(describe(op, pass, dtype, attributes));
      const KernelFn kernel = cpu_kernel(op, pass, dtype);
      const std::vector<Buffer> whole = mixed_inputs(op, pass, dtype, largest_size);
      const std::vector<Buffer> expected = run(op, pass, kernel, whole, attributes);
      for (const std::size_t size : sizes()) {
        const auto outputs = run(op, pass, kernel, parts(whole, 0, size), attributes);
        for (std::size_t k = 0; k < outputs.size(); ++k) {
          CHECK_MESSAGE(is_part(expected[k], 0, outputs[k]), "size ", size, ", output ", k);
        }
      }
    });
  }

  TEST_CASE("an output may be any of the inputs") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      constexpr std::size_t count = 777;
      const KernelFn kernel = cpu_kernel(op, pass, dtype);
      const std::vector<Buffer> inputs = mixed_inputs(op, pass, dtype, count);
      for (const auto& attributes : attribute_sets(op)) {
        CAPTURE(describe(op, pass, dtype, attributes));
        const std::vector<Buffer> expected = run(op, pass, kernel, inputs, attributes);
        // The first output is input `shared`, the next the one after it, and so on around.
        for (std::size_t shared = 0; shared < inputs.size(); ++shared) {
          for (std::size_t step = 1; step < std::max<std::size_t>(inputs.size(), 2); ++step) {
            std::vector<Buffer> changed = inputs;
            std::vector<bool> overwritten(inputs.size(), false);
            std::vector<void*> to;
            for (std::size_t k = 0; k < expected.size(); ++k) {
              const std::size_t place = (shared + k * step) % inputs.size();
              overwritten[place] = true;
              to.push_back(changed[place].data());
            }
            kernel(addresses(changed).data(), to.data(), count, attributes.data(),
                   Placement::cache);
            for (std::size_t k = 0; k < expected.size(); ++k) {
              const std::size_t place = (shared + k * step) % inputs.size();
              CHECK_MESSAGE(is_part(expected[k], 0, changed[place]), "output ", k, " is input ",
                            place);
            }
            for (std::size_t k = 0; k < inputs.size(); ++k) {
              CHECK((overwritten[k] || changed[k] == inputs[k]));
            }
            if (expected.size() == 1) break;
          }
        }
      }
    });
  }

  TEST_CASE("a far value does not change the bits of its block") {
    constexpr long double infinity = std::numeric_limits<long double>::infinity();
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      const KernelFn kernel = cpu_kernel(op, pass, dtype);
      for (const auto& attributes : attribute_sets(op)) {
        CAPTURE(describe(op, pass, dtype, attributes));
        const Interval bend = bend_of(op, dtype, attributes);
        const long double largest = format_of(dtype).largest();
        // What is far depends on the op: with the smaller factor, hardly anything that is near is.
        for (const long double near : {0.7L, 0.05L}) {
          const Buffer x = spread_values(dtype, {bend.low * near, bend.high * near}, 256);
          const std::vector<Buffer> inputs = pass_inputs(op, pass, x);
          const std::vector<Buffer> expected = run(op, pass, kernel, inputs, attributes);
          for (const long double far :
               {bend.low, bend.high, -largest, largest, -infinity, infinity}) {
            for (const std::size_t place : {0, 100, 255}) {
              for (std::size_t input = 0; input < op.input_count; ++input) {
                std::vector<Buffer> changed = inputs;
                changed[position(op, pass, input)].set_bits(place, round_to(format_of(dtype), far));
                const auto outputs = run(op, pass, kernel, changed, attributes);
                bool unchanged = true;
                for (std::size_t k = 0; k < outputs.size(); ++k) {
                  for (std::size_t i = 0; i < x.count(); ++i) {
                    unchanged =
                        unchanged && (i == place || outputs[k].bits(i) == expected[k].bits(i));
                  }
                }
                CHECK_MESSAGE(unchanged, static_cast<double>(far), " in input ", input, " at ",
                              place);
              }
            }
          }
        }
      }
    });
  }
}

}  // namespace myops::tests
