// SPDX-License-Identifier: Apache-2.0
// Conversions between f32 and the two half formats, round to nearest even, by integer arithmetic:
// compilers vectorise these loops, unlike _Float16. They are right under FTZ/DAZ, too, because no
// intermediate value is denormal. NaN keeps its sign and upper payload and becomes quiet.
#pragma once

#include "math/portable.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

struct Half {
  std::uint16_t bits;
};

struct BFloat16 {
  std::uint16_t bits;
};

/// The type functors compute in for a stored type.
template <class Storage>
struct ComputeType {
  using type = Storage;
};
template <>
struct ComputeType<Half> {
  using type = float;
};
template <>
struct ComputeType<BFloat16> {
  using type = float;
};

MYOPS_FN float to_float(BFloat16 x) {
  return bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

MYOPS_FN BFloat16 to_bfloat16(float x) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded)};
}

MYOPS_FN float to_float(Half x) {
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t rebias = (127u - 15u) << 23;
  const std::uint32_t normal = (magnitude << 13) + rebias;
  const std::uint32_t special =
      (magnitude << 13) | 0x7f800000u | (magnitude > 0x7c00u ? 0x400000u : 0u);
  // A denormal's bits under the exponent of the smallest normal, less that normal.
  const float denormal = bit_cast<float>((magnitude << 13) + rebias + (1u << 23)) - 0x1p-14f;
  const std::uint32_t small = bit_cast<std::uint32_t>(denormal);
  const std::uint32_t bits =
      magnitude >= 0x7c00u ? special : (magnitude < 0x0400u ? small : normal);
  return bit_cast<float>(bits | sign);
}

MYOPS_FN Half to_half(float x) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t rebias = (127u - 15u) << 23;
  const std::uint32_t normal = (magnitude - rebias + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 aligns the last kept bit with the denormal step 2^-24; the adder rounds.
  const float aligned = bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f;
  const std::uint32_t denormal = bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
  const std::uint32_t quiet_nan = ((magnitude >> 13) & 0x3ffu) | 0x7e00u;
  const bool is_nan = magnitude > 0x7f800000u;
  const bool overflows = magnitude >= 0x477ff000u;  // rounds to 65520 or more
  const std::uint32_t finite = magnitude < 0x38800000u ? denormal : normal;
  const std::uint32_t result = is_nan ? quiet_nan : (overflows ? 0x7c00u : finite);
  return {static_cast<std::uint16_t>(result | sign)};
}

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
