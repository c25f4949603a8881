// SPDX-License-Identifier: Apache-2.0
// Unidirectional broadcasting: an input whose sizes are those of the first input or 1, aligned at
// the last dim. CPU kernels take flat memory, so such an input is spread into small tiles for them;
// CUDA kernels ask for an element's place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "myops/host_device.hpp"

namespace myops {

inline constexpr std::size_t most_dims = 32;

/// Elements spread at a time: what the kernels compute at a time, small enough for L1.
inline constexpr std::int64_t tile_elements = 256;

/// How an input lies over the first one, outermost dim first, without dims of size 1 and with
/// neighbours of one kind merged.
struct Broadcast {
  std::size_t rank = 0;
  std::int64_t sizes[most_dims];
  std::int64_t strides[most_dims];  // in elements; 0 where the input is repeated

  /// Whether the input is read as it lies in memory.
  bool is_direct() const noexcept { return rank == 0 || (rank == 1 && strides[0] == 1); }

  /// Where the element lies that the first input's element `index` meets. GPUs divide 32 bits
  /// several times faster than 64, and few tensors need 64.
  MYOPS_HOST_DEVICE std::int64_t offset(std::int64_t index) const noexcept {
    return index <= 0xffffffff ? offset_of<std::uint32_t>(index) : offset_of<std::int64_t>(index);
  }

 private:
  template <class Index>
  MYOPS_HOST_DEVICE std::int64_t offset_of(std::int64_t index) const noexcept {
    Index rest = static_cast<Index>(index);
    std::int64_t result = 0;
    for (std::size_t i = rank; i-- > 0;) {
      const Index size = static_cast<Index>(sizes[i]);
      result += static_cast<std::int64_t>(rest % size) * strides[i];
      rest /= size;
    }
    return result;
  }
};

/// Fills `plan`; false where the shapes do not fit. Ranks are at most most_dims.
inline bool plan_broadcast(const std::int64_t* dims, std::size_t rank, const std::int64_t* own_dims,
                           std::size_t own_rank, Broadcast* plan) noexcept {
  if (own_rank > rank) return false;
  plan->rank = 0;
  bool last_repeats = false;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t missing = rank - own_rank;
    const std::int64_t own = i < missing ? 1 : own_dims[i - missing];
    if (own != dims[i] && own != 1) return false;
    if (dims[i] == 1) continue;
    const bool repeats = own == 1;
    if (plan->rank > 0 && repeats == last_repeats) {
      plan->sizes[plan->rank - 1] *= dims[i];
    } else {
      plan->sizes[plan->rank] = dims[i];
      plan->strides[plan->rank] = repeats ? 0 : 1;
      ++plan->rank;
    }
    last_repeats = repeats;
  }
  std::int64_t stride = 1;
  for (std::size_t i = plan->rank; i-- > 0;) {
    if (plan->strides[i] == 0) continue;
    plan->strides[i] = stride;
    stride *= plan->sizes[i];
  }
  return true;
}

/// Elements `begin` to `begin + count` of the input at `from` as the first input sees it.
template <class Element>
void spread(const Broadcast& plan, const Element* from, std::int64_t begin, std::int64_t count,
            Element* to) noexcept {
  std::int64_t place[most_dims];
  std::int64_t rest = begin;
  std::int64_t offset = 0;
  for (std::size_t i = plan.rank; i-- > 0;) {
    place[i] = rest % plan.sizes[i];
    rest /= plan.sizes[i];
    offset += place[i] * plan.strides[i];
  }
  const std::size_t last = plan.rank - 1;
  while (count > 0) {
    std::int64_t run = plan.sizes[last] - place[last];
    if (run > count) run = count;
    if (plan.strides[last] == 0) {
      const Element value = from[offset];
      for (std::int64_t i = 0; i < run; ++i) to[i] = value;
    } else {
      std::memcpy(to, from + offset, static_cast<std::size_t>(run) * sizeof(Element));
    }
    to += run;
    count -= run;
    place[last] += run;
    offset += run * plan.strides[last];
    for (std::size_t i = last; i > 0 && place[i] == plan.sizes[i]; --i) {
      offset += plan.strides[i - 1] - place[i] * plan.strides[i];
      place[i] = 0;
      ++place[i - 1];
    }
  }
}

/// The same by the size of an element; `count` is at most tile_elements.
inline void spread(const Broadcast& plan, const void* from, std::int64_t begin, std::int64_t count,
                   std::int64_t element_bytes, void* to) noexcept {
  if (element_bytes == 8) {
    spread(plan, static_cast<const std::uint64_t*>(from), begin, count,
           static_cast<std::uint64_t*>(to));
  } else if (element_bytes == 4) {
    spread(plan, static_cast<const std::uint32_t*>(from), begin, count,
           static_cast<std::uint32_t*>(to));
  } else {
    spread(plan, static_cast<const std::uint16_t*>(from), begin, count,
           static_cast<std::uint16_t*>(to));
  }
}

}  // namespace myops
