// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a GPU launch, callable on the host so that it is tested without a GPU.
#pragma once

#include <cstdint>

#include "myops/host_device.hpp"

namespace myops {

/// One grid-stride launch over `head + vectors * vector_width + tail` elements.
struct LaunchPlan {
  std::int64_t head;     // scalar elements before the first aligned vector
  std::int64_t vectors;  // full vectors
  std::int64_t tail;     // scalar elements after the last vector
  std::int64_t vector_width;
  std::uint32_t blocks;
  std::uint32_t threads;
};

/// Plans `count` elements of `element_size` bytes whose first element lies `misalignment` bytes
/// past a 16-byte boundary (a multiple of element_size), or with width 1 when `vectorize` is
/// false. Blocks stay within `max_blocks`; the grid-stride loop covers the rest. An empty range
/// has 0 blocks: nothing may be launched.
constexpr LaunchPlan plan_launch(std::int64_t count, std::int64_t element_size,
                                 std::int64_t misalignment, bool vectorize,
                                 std::int64_t max_blocks) noexcept {
  constexpr std::int64_t vector_bytes = 16;
  constexpr std::int64_t threads = 256;
  LaunchPlan plan{0, 0, 0, 1, 0, static_cast<std::uint32_t>(threads)};
  if (count <= 0) return plan;
  if (vectorize) {
    plan.vector_width = vector_bytes / element_size;
    const std::int64_t to_boundary = (vector_bytes - misalignment) % vector_bytes / element_size;
    plan.head = to_boundary < count ? to_boundary : count;
  }
  plan.vectors = (count - plan.head) / plan.vector_width;
  plan.tail = count - plan.head - plan.vectors * plan.vector_width;
  // Head and tail are done by the first threads of the grid, so at least one block must exist.
  std::int64_t blocks = plan.vectors / threads + (plan.vectors % threads != 0 ? 1 : 0);
  if (blocks < 1) blocks = 1;
  if (blocks > max_blocks) blocks = max_blocks;
  plan.blocks = static_cast<std::uint32_t>(blocks);
  return plan;
}

/// What thread `thread` of block `block` does: `scalar(i)` for its element of head or tail,
/// `vector(i)` for each of its vectors, i being the index of their first element.
template <class Scalar, class Vector>
MYOPS_HOST_DEVICE void walk(const LaunchPlan& plan, std::int64_t block, std::int64_t thread,
                            const Scalar& scalar, const Vector& vector) {
  const std::int64_t index = block * plan.threads + thread;
  const std::int64_t stride = static_cast<std::int64_t>(plan.blocks) * plan.threads;
  if (index < plan.head) {
    scalar(index);
  } else if (index - plan.head < plan.tail) {
    scalar(plan.vectors * plan.vector_width + index);
  }
  for (std::int64_t v = index; v < plan.vectors; v += stride) {
    vector(plan.head + v * plan.vector_width);
  }
}

}  // namespace myops
