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

/// The bend of the function and everything around it, so that blocks differ in range.
Buffer mixed_values(const OpInfo& op, DType dtype, std::size_t count) {
  const OpReference& reference = reference_of(op);
  const auto attributes = rounded_attributes(dtype, reference.attribute_sets.front());
  const Interval bend = reference.bend(dtype, attributes.data());
  return spread_values(dtype, {bend.low * 1.2L, bend.high * 1.2L}, count);
}

std::vector<const void*> pointers(const std::vector<Buffer>& inputs, std::size_t offset) {
  std::vector<const void*> from;
  for (const Buffer& input : inputs) from.push_back(input.at(offset));
  return from;
}

Buffer part(const Buffer& whole, std::size_t begin, std::size_t count) {
  Buffer copy(whole.dtype(), count);
  for (std::size_t i = 0; i < count; ++i) copy.set_bits(i, whole.bits(begin + i));
  return copy;
}

bool is_part(const Buffer& whole, std::size_t begin, const Buffer& piece) {
  for (std::size_t i = 0; i < piece.count(); ++i) {
    if (!same_element(piece, i, whole, begin + i)) return false;
  }
  return true;
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
      const std::vector<Buffer> inputs =
          pass_inputs(pass, mixed_values(op, dtype, largest_size + offsets));
      const std::vector<Buffer> kept = inputs;
      const Buffer expected = run(kernel, inputs, attributes);
      const Buffer untouched = sentinels(dtype, largest_size + offsets + 2 * margin);
      for (const std::size_t size : sizes()) {
        for (std::size_t offset = 0; offset < offsets; ++offset) {
          // Inputs and output differ in alignment.
          const std::size_t begin = margin + (offset * 7 + 3) % offsets;
          Buffer output = untouched;
          void* to[] = {output.at(begin)};
          kernel(pointers(inputs, offset).data(), to, static_cast<std::int64_t>(size),
                 attributes.data());
          bool right = true;
          for (std::size_t i = 0; i < output.count(); ++i) {
            const bool inside = i >= begin && i < begin + size;
            right = right && (inside ? same_element(output, i, expected, offset + i - begin)
                                     : output.bits(i) == untouched.bits(i));
          }
          CHECK_MESSAGE(right, "size ", size, ", offset ", offset);
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
      const std::vector<Buffer> whole = pass_inputs(pass, mixed_values(op, dtype, largest_size));
      const Buffer expected = run(kernel, whole, attributes);
      for (const std::size_t size : sizes()) {
        std::vector<Buffer> inputs;
        for (const Buffer& input : whole) inputs.push_back(part(input, 0, size));
        CHECK_MESSAGE(is_part(expected, 0, run(kernel, inputs, attributes)), "size ", size);
      }
    });
  }

  TEST_CASE("an output may be any of the inputs") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      for (const auto& attributes : attribute_sets(op)) {
        CAPTURE(describe(op, pass, dtype, attributes));
        const KernelFn kernel = cpu_kernel(op, pass, dtype);
        const std::vector<Buffer> inputs = pass_inputs(pass, mixed_values(op, dtype, 777));
        const Buffer expected = run(kernel, inputs, attributes);
        for (std::size_t shared = 0; shared < inputs.size(); ++shared) {
          std::vector<Buffer> changed = inputs;
          void* to[] = {changed[shared].data()};
          kernel(pointers(changed, 0).data(), to, 777, attributes.data());
          CHECK_MESSAGE(is_part(expected, 0, changed[shared]), "input ", shared);
          for (std::size_t k = 0; k < inputs.size(); ++k) {
            CHECK((k == shared || changed[k] == inputs[k]));
          }
        }
      }
    });
  }

  TEST_CASE("a far value does not change the bits of its block") {
    constexpr long double infinity = std::numeric_limits<long double>::infinity();
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      const OpReference& reference = reference_of(op);
      for (const auto& attributes : reference.attribute_sets) {
        CAPTURE(describe(op, pass, dtype, attributes));
        const Interval bend = reference.bend(dtype, rounded_attributes(dtype, attributes).data());
        const KernelFn kernel = cpu_kernel(op, pass, dtype);
        const Buffer x = spread_values(dtype, {bend.low * 0.7L, bend.high * 0.7L}, 256);
        const Buffer expected = run(kernel, pass_inputs(pass, x), attributes);
        const long double largest = format_of(dtype).largest();
        for (const long double far :
             {bend.low, bend.high, -largest, largest, -infinity, infinity}) {
          for (const std::size_t position : {0, 100, 255}) {
            std::vector<Buffer> inputs = pass_inputs(pass, x);
            inputs.back().set_bits(position, round_to(format_of(dtype), far));
            const Buffer output = run(kernel, inputs, attributes);
            bool unchanged = true;
            for (std::size_t i = 0; i < output.count(); ++i) {
              unchanged = unchanged && (i == position || output.bits(i) == expected.bits(i));
            }
            CHECK_MESSAGE(unchanged, static_cast<double>(far), " at ", position);
          }
        }
      }
    });
  }
}

}  // namespace myops::tests
