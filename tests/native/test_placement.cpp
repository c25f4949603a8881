// SPDX-License-Identifier: Apache-2.0
// Outputs past the caches: when, and that nothing but their way to memory differs.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include <doctest/doctest.h>

#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

constexpr std::size_t line_bytes = 64;
// The driver streams whole groups of this size.
constexpr std::size_t group_bytes = 4 * 4096;
constexpr std::size_t largest_size = 40000;
constexpr unsigned char sentinel = 0xa5;

/// Memory for `count` elements that starts at any offset from a cache line, between sentinels.
class Target {
 public:
  Target(DType dtype, std::size_t count)
      : size_(element_size(dtype)), bytes_(count * size_ + 4 * line_bytes, sentinel) {}

  /// The place of the first element; its distance from a line is `offset` bytes.
  unsigned char* begin(std::size_t offset) {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(bytes_.data()) % line_bytes;
    return bytes_.data() + 2 * line_bytes - past + offset;
  }

  /// Whether `count` elements equal those at `expected` and nothing around them was written.
  /// Writes the sentinels anew.
  bool holds(std::size_t offset, const void* expected, std::size_t count) {
    unsigned char* first = begin(offset);
    const auto is_sentinel = [](unsigned char byte) { return byte == sentinel; };
    unsigned char* last = first + count * size_;
    unsigned char* end = std::min(last + line_bytes, bytes_.data() + bytes_.size());
    const bool right = std::memcmp(first, expected, count * size_) == 0 &&
                       std::all_of(bytes_.data(), first, is_sentinel) &&
                       std::all_of(last, end, is_sentinel);
    std::memset(first, sentinel, count * size_);
    return right;
  }

 private:
  std::size_t size_;
  std::vector<unsigned char> bytes_;
};

/// Inputs without NaN, whose bits are the compiler's choice, and what the cached way makes of them.
struct Sample {
  Sample(const OpInfo& op, Pass pass, DType dtype, std::size_t count)
      : attributes(attribute_sets(op).front()), kernel(cpu_kernel(op, pass, dtype)) {
    const Interval bend = bend_of(op, dtype, attributes);
    inputs = pass_inputs(op, pass, spread_values(dtype, bend, count));
    expected = run(op, pass, kernel, inputs, attributes);
    for (std::size_t k = 0; k < expected.size(); ++k) targets.emplace_back(dtype, count);
  }

  /// Runs elements `first` to `first + count`; output k starts `offsets[k]` bytes past a line.
  bool streams(std::size_t first, std::size_t count, const std::vector<std::size_t>& offsets) {
    std::vector<void*> to;
    for (std::size_t k = 0; k < targets.size(); ++k) to.push_back(targets[k].begin(offsets[k]));
    kernel(addresses(inputs, first).data(), to.data(), static_cast<std::int64_t>(count),
           attributes.data(), Placement::memory);
    bool right = true;
    for (std::size_t k = 0; k < targets.size(); ++k) {
      right = targets[k].holds(offsets[k], expected[k].at(first), count) && right;
    }
    return right;
  }

  std::vector<double> attributes;
  KernelFn kernel;
  std::vector<Buffer> inputs;
  std::vector<Buffer> expected;
  std::vector<Target> targets;
};

}  // namespace

TEST_SUITE("kernel") {
  TEST_CASE("both placements give the same bits and write nothing else") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      CAPTURE(describe(op, pass, dtype, attribute_sets(op).front()));
      const std::size_t size = element_size(dtype);
      const std::size_t group = group_bytes / size;
      Sample sample(op, pass, dtype, largest_size + 8);
      const std::size_t outputs = sample.targets.size();
      const auto check = [&](std::size_t first, std::size_t count, std::size_t offset) {
        CHECK_MESSAGE(sample.streams(first, count, std::vector<std::size_t>(outputs, offset)),
                      "size ", count, ", inputs from ", first, ", outputs ", offset,
                      " bytes past a line");
      };
      for (std::size_t count = 0; count <= 300; ++count) check(count % 5, count, count * size % 64);
      for (std::size_t offset = 0; offset < line_bytes; offset += size) {
        check(offset / size % 3, offset / size, offset);
        // Elements before the first line, which are not streamed.
        const std::size_t head = (line_bytes - offset) % line_bytes / size;
        check(0, group + head - 1, offset);
        check(1, group + head, offset);
        check(2, 2 * group + head + 1, offset);
      }
      for (std::size_t pages = 1; pages * 4096 / size < largest_size; pages += 5) {
        check(pages % 2, pages * 4096 / size - 1, pages * size % line_bytes);
        check(pages % 3, pages * 4096 / size + 1, 0);
      }
      check(0, largest_size, 0);
      check(3, largest_size, line_bytes - size);
    });
  }

  TEST_CASE("outputs that lie on different lines are written, too") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (output_count(op, pass) == 1) return;
      CAPTURE(describe(op, pass, dtype, attribute_sets(op).front()));
      const std::size_t size = element_size(dtype);
      const std::size_t count = 2 * group_bytes / size + 7;
      Sample sample(op, pass, dtype, count);
      for (std::size_t odd = 0; odd < sample.targets.size(); ++odd) {
        std::vector<std::size_t> offsets(sample.targets.size(), 0);
        offsets[odd] = size;
        CHECK_MESSAGE(sample.streams(0, count, offsets), "output ", odd);
      }
    });
  }

  TEST_CASE("streaming in buffers of the exact size: AddressSanitizer sees a read past the end") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      const std::vector<double> attributes = attribute_sets(op).front();
      CAPTURE(describe(op, pass, dtype, attributes));
      const KernelFn kernel = cpu_kernel(op, pass, dtype);
      const std::size_t group = group_bytes / element_size(dtype);
      for (const std::size_t count : {group - 1, group, group + line_bytes, 3 * group}) {
        const Buffer x = spread_values(dtype, bend_of(op, dtype, attributes), count);
        const std::vector<Buffer> inputs = pass_inputs(op, pass, x);
        CHECK(run(op, pass, kernel, inputs, attributes, Placement::memory) ==
              run(op, pass, kernel, inputs, attributes, Placement::cache));
      }
    });
  }
}

// CTest runs this one with values of MYOPS_STREAM_BYTES, too, and with the threshold that each of
// them should give in MYOPS_TEST_THRESHOLD.
TEST_CASE("MYOPS_STREAM_BYTES: large outputs go to memory, unless they are an input") {
  const char* text = std::getenv("MYOPS_TEST_THRESHOLD");
  const std::int64_t threshold = text == nullptr ? 32 * 1024 * 1024 : std::stoll(text);
  CAPTURE(threshold);
  CHECK((placement_for(threshold, false) == Placement::memory));
  CHECK((placement_for(threshold + 1, false) == Placement::memory));
  CHECK((placement_for(std::int64_t(1) << 50, false) == Placement::memory));
  if (threshold > 0) {
    CHECK((placement_for(threshold - 1, false) == Placement::cache));
    CHECK((placement_for(0, false) == Placement::cache));
  }
  for (const std::int64_t bytes : {threshold, threshold + 1, std::int64_t(1) << 50}) {
    CHECK((placement_for(bytes, true) == Placement::cache));
  }
}

}  // namespace myops::tests
