// SPDX-License-Identifier: Apache-2.0
// exp in pieces, for f32 and f64. The functors put the pieces together.
#pragma once

#include "math/portable.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// A value of twice the precision: hi + lo, |lo| <= ulp(hi) / 2.
template <class T>
struct TwoFloat {
  T hi;
  T lo;
};

/// The constant hi + lo in twice the precision of T.
template <class T>
constexpr TwoFloat<T> two_float(double hi, double lo) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return {hi, lo};
  } else {
    return {static_cast<T>(hi), static_cast<T>(hi - static_cast<double>(static_cast<T>(hi)))};
  }
}

inline constexpr double log2_e_hi = 0x1.71547652b82fep+0;
inline constexpr double log2_e_lo = 0x1.777d0ffda0d24p-56;

/// -scale * log2(e), rounded to twice the precision of T. A constant in one T would cost about
/// 60 ulp of exp at |scale * x| = 80, because its error is multiplied by the argument.
MYOPS_FN TwoFloat<float> negative_log2_e_times(float scale) {
  return two_float<float>(-static_cast<double>(scale) * log2_e_hi, 0);
}

MYOPS_FN TwoFloat<double> negative_log2_e_times(double scale) {
  const double hi = -scale * log2_e_hi;
  const double error = __builtin_fma(-scale, log2_e_hi, -hi);
  return {hi, __builtin_fma(-scale, log2_e_lo, error)};
}

/// The upper half of the mantissa, the shorter one where the halves differ: products of two upper
/// halves, and of an upper and a lower one, are exact. Cut out by a mask, since splitting by
/// multiplication could overflow.
template <class T>
MYOPS_FN T upper_half(T x) {
  constexpr auto mask =
      ~((typename FloatTraits<T>::UInt(1) << ((FloatTraits<T>::mantissa_bits + 2) / 2)) - 1);
  return bit_cast<T>(to_bits(x) & mask);
}

/// a * b - c to about twice the precision, for c close to a * b.
template <class T>
MYOPS_FN T product_minus(T a, T b, T c) {
#if MYOPS_HAS_FMA
  return multiply_add(a, b, -c);
#else
  const T a_hi = upper_half(a);
  const T b_hi = upper_half(b);
  const T a_lo = a - a_hi;
  const T b_lo = b - b_hi;
  return (((a_hi * b_hi - c) + a_hi * b_lo) + a_lo * b_hi) + a_lo * b_lo;
#endif
}

template <class T>
MYOPS_FN TwoFloat<T> product(T a, T b) {
  const T hi = a * b;
  return {hi, product_minus(a, b, hi)};
}

/// x * c to about twice the precision.
template <class T>
MYOPS_FN TwoFloat<T> product(TwoFloat<T> x, TwoFloat<T> c) {
  const TwoFloat<T> leading = product(x.hi, c.hi);
  return {leading.hi, multiply_add(x.lo, c.hi, multiply_add(x.hi, c.lo, leading.lo))};
}

/// a + x to about twice the precision.
template <class T>
MYOPS_FN TwoFloat<T> sum(T a, TwoFloat<T> x) {
  const T hi = a + x.hi;
  const T part = hi - a;
  return {hi, ((a - (hi - part)) + (x.hi - part)) + x.lo};
}

/// (2^f - 1) / f for |f| <= 0.5, minimax. Relative error of 2^f: 1.7e-8 in f32, most of it from
/// rounding the coefficients, and 2e-17 in f64.
MYOPS_FN float exp2_slope(float f) {
  float p = 0x1.41fb2cp-13f;
  p = multiply_add(p, f, 0x1.5f3f30p-10f);
  p = multiply_add(p, f, 0x1.3b2d50p-7f);
  p = multiply_add(p, f, 0x1.c6aee6p-5f);
  p = multiply_add(p, f, 0x1.ebfbdcp-3f);
  return multiply_add(p, f, 0x1.62e430p-1f);
}

MYOPS_FN double exp2_slope(double f) {
  double p = 0x1.c4a29324a1038p-36;
  p = multiply_add(p, f, 0x1.e9ec1fcb69a7fp-32);
  p = multiply_add(p, f, 0x1.e4cf10dec0f59p-28);
  p = multiply_add(p, f, 0x1.b524ebd13a55fp-24);
  p = multiply_add(p, f, 0x1.62c02242b879cp-20);
  p = multiply_add(p, f, 0x1.ffcbfc6da6ed1p-17);
  p = multiply_add(p, f, 0x1.430912f86b7dbp-13);
  p = multiply_add(p, f, 0x1.5d87fe78a3f9cp-10);
  p = multiply_add(p, f, 0x1.3b2ab6fba4e79p-7);
  p = multiply_add(p, f, 0x1.c6b08d704a0c6p-5);
  p = multiply_add(p, f, 0x1.ebfbdff82c58fp-3);
  return multiply_add(p, f, 0x1.62e42fefa39efp-1);
}

/// The same with a relative error of 2^f of 3e-6.
MYOPS_FN float exp2_slope_brief(float f) {
  float p = 0x1.3a0228p-7f;
  p = multiply_add(p, f, 0x1.c9fdecp-5f);
  p = multiply_add(p, f, 0x1.ec0380p-3f);
  return multiply_add(p, f, 0x1.62e12ap-1f);
}

/// Adding this rounds to an integer and leaves that integer plus the exponent bias in the low
/// bits, ready to be shifted into an exponent field.
template <class T>
inline constexpr T round_and_bias =
    FloatTraits<T>::mantissa_bits == 23 ? T(0x1.8p23 + 127) : T(0x1.8p52 + 1023);

/// 2^z = mantissa * 2^n, mantissa in [0.70, 1.42], n = biased - round_and_bias.
template <class T>
struct SplitExp {
  T mantissa;
  T biased;
};

/// 2^(x * c), valid while |x * c| is below 2^21. NaN gives NaN.
template <class T>
MYOPS_FN SplitExp<T> split_exp2(T x, TwoFloat<T> c) {
  const T biased = multiply_add(x, c.hi, round_and_bias<T>);
  const T n = biased - round_and_bias<T>;
  const T f = multiply_add(x, c.lo, product_minus(x, c.hi, n));
  return {multiply_add(exp2_slope(f), f, T(1)), biased};
}

/// The same without the low part of c: 2^(x * c.hi) to a relative error of 3e-6 + 6e-8 |x c|.
MYOPS_FN SplitExp<float> split_exp2_brief(float x, TwoFloat<float> c) {
  const float biased = multiply_add(x, c.hi, round_and_bias<float>);
  const float f = product_minus(x, c.hi, biased - round_and_bias<float>);
  return {multiply_add(exp2_slope_brief(f), f, 1.0f), biased};
}

/// 2^z, valid while |z| is below 2^21. NaN gives NaN.
template <class T>
MYOPS_FN SplitExp<T> split_exp2(TwoFloat<T> z) {
  const T biased = z.hi + round_and_bias<T>;
  const T n = biased - round_and_bias<T>;
  const T f = (z.hi - n) + z.lo;
  return {multiply_add(exp2_slope(f), f, T(1)), biased};
}

/// 2^n for n = biased - round_and_bias in [-(bias - 1), bias].
template <class T>
MYOPS_FN T exp2_of(T biased) {
  return bit_cast<T>(to_bits(biased) << FloatTraits<T>::mantissa_bits);
}

/// 2^-k for 0 <= k < bias.
template <class T>
MYOPS_FN T exp2_minus(typename FloatTraits<T>::UInt k) {
  return bit_cast<T>((FloatTraits<T>::bias - k) << FloatTraits<T>::mantissa_bits);
}

/// A power of two that stays within the exponent range, and what is missing from it, as two factors
/// because one could itself leave the range. With Range::common nothing is missing.
template <class T>
struct CappedPower {
  T power;
  T shrink_1;
  T shrink_2;

  /// y * shrink_1 * shrink_2.
  template <Range range>
  MYOPS_FN T rescale(T y) const {
    if constexpr (is_full(range)) return y * shrink_1 * shrink_2;
    return y;
  }
};

/// 2^n = power / (shrink_1 * shrink_2), for n from -(bias - 1) up to 3 * bias.
template <Range range, class T>
MYOPS_FN CappedPower<T> cap_above(T biased) {
  if constexpr (!is_full(range)) return {exp2_of(biased), T(1), T(1)};
  constexpr T last = round_and_bias<T> + T(FloatTraits<T>::bias - 1);
  const T capped = at_most(biased, last);
  const auto excess = to_bits(biased) - to_bits(capped);
  const auto half = excess >> 1;
  return {exp2_of(capped), exp2_minus<T>(half), exp2_minus<T>(excess - half)};
}

/// 2^n = power * shrink_1 * shrink_2, for n from -3 * bias up to bias.
template <Range range, class T>
MYOPS_FN CappedPower<T> cap_below(T biased) {
  if constexpr (!is_full(range)) return {exp2_of(biased), T(1), T(1)};
  constexpr T first = round_and_bias<T> - T(FloatTraits<T>::bias - 1);
  const T capped = at_least(biased, first);
  const auto missing = to_bits(capped) - to_bits(biased);
  const auto half = missing >> 1;
  return {exp2_of(capped), exp2_minus<T>(half), exp2_minus<T>(missing - half)};
}

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
