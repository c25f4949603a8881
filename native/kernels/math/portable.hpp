// SPDX-License-Identifier: Apache-2.0
// What the math needs from compiler and ISA, spelt once: inlining, fused multiply-add, bit casts.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MYOPS_FN __host__ __device__ __forceinline__
#else
// Functors must vanish into the loops: a call left over would stop vectorisation and would be a
// weak symbol that the linker may take from an object compiled for another ISA.
#define MYOPS_FN inline __attribute__((always_inline))
#endif

// Code compiled once per ISA lives in a namespace named after the ISA, for the same reason.
#ifndef MYOPS_ISA_NAME
#define MYOPS_ISA_NAME neutral
#endif

#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDA_ARCH__)
#define MYOPS_HAS_FMA 1
#else
#define MYOPS_HAS_FMA 0
#endif

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// `common` may assume that the input is in the range the operator calls common (where no
/// intermediate value leaves the exponent range); `full` holds for every input and gives the same
/// bits on the common ones. The brief ones are for results that will be rounded to a half type: an
/// operator may then be content with a relative error of 4e-6.
enum class Range { common, full, brief_common, brief_full };

constexpr bool is_full(Range range) { return range == Range::full || range == Range::brief_full; }
constexpr bool is_brief(Range range) {
  return range == Range::brief_common || range == Range::brief_full;
}

template <class T>
struct FloatTraits;

template <>
struct FloatTraits<float> {
  using UInt = std::uint32_t;
  static constexpr int mantissa_bits = 23;
  static constexpr int bias = 127;
  static constexpr float largest = 0x1.fffffep127f;
  static constexpr UInt sign_bit = 0x80000000u;
};

template <>
struct FloatTraits<double> {
  using UInt = std::uint64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr int bias = 1023;
  static constexpr double largest = 0x1.fffffffffffffp1023;
  static constexpr UInt sign_bit = 0x8000000000000000u;
};

template <class To, class From>
MYOPS_FN To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
MYOPS_FN typename FloatTraits<T>::UInt to_bits(T x) {
  return bit_cast<typename FloatTraits<T>::UInt>(x);
}

/// x with the bits of `mask` flipped; mask is 0 or the sign bit.
template <class T>
MYOPS_FN T flip_sign(T x, typename FloatTraits<T>::UInt mask) {
  return bit_cast<T>(to_bits(x) ^ mask);
}

/// a * b + c with one rounding where the ISA has the instruction. Written out instead of left to
/// -ffp-contract so that every ISA with FMA gives the same bits. Without FMA: two roundings, since
/// the library call is a hundred times slower.
MYOPS_FN float multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#elif MYOPS_HAS_FMA
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

MYOPS_FN double multiply_add(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#elif MYOPS_HAS_FMA
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

// Comparisons are written so that NaN in x passes through.
template <class T>
MYOPS_FN T at_most(T x, T limit) {
  return x > limit ? limit : x;
}

template <class T>
MYOPS_FN T at_least(T x, T limit) {
  return x < limit ? limit : x;
}

template <class T>
MYOPS_FN T magnitude(T x) {
  return bit_cast<T>(to_bits(x) & ~FloatTraits<T>::sign_bit);
}

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
