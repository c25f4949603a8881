// SPDX-License-Identifier: Apache-2.0
// exp of a product, in pieces, for f32 and f64. The functors put the pieces together.
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

inline constexpr double log2_e_hi = 0x1.71547652b82fep+0;
inline constexpr double log2_e_lo = 0x1.777d0ffda0d24p-56;

/// -scale * log2(e), rounded to twice the precision of T. A constant in one T would cost about
/// 60 ulp of exp at |scale * x| = 80, because its error is multiplied by the argument.
MYOPS_FN TwoFloat<float> negative_log2_e_times(float scale) {
  const double product = -static_cast<double>(scale) * log2_e_hi;
  const float hi = static_cast<float>(product);
  return {hi, static_cast<float>(product - static_cast<double>(hi))};
}

MYOPS_FN TwoFloat<double> negative_log2_e_times(double scale) {
  const double hi = -scale * log2_e_hi;
  const double error = __builtin_fma(-scale, log2_e_hi, -hi);
  return {hi, __builtin_fma(-scale, log2_e_lo, error)};
}

/// (2^f - 1) / f for |f| <= 0.5, minimax. Relative error of 2^f: 2e-9 (f32), 2e-17 (f64).
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

/// Adding this rounds to an integer and leaves that integer plus the exponent bias in the low
/// bits, ready to be shifted into an exponent field.
template <class T>
inline constexpr T round_and_bias =
    FloatTraits<T>::mantissa_bits == 23 ? T(0x1.8p23 + 127) : T(0x1.8p52 + 1023);

/// 2^(x * c) = mantissa * 2^n, mantissa in [0.70, 1.42], n = biased - round_and_bias.
template <class T>
struct SplitExp {
  T mantissa;
  T biased;
};

/// The residue x * c - n to about twice the precision of T.
template <class T>
MYOPS_FN T reduce(T x, TwoFloat<T> c, T n) {
#if MYOPS_HAS_FMA
  return multiply_add(x, c.lo, multiply_add(x, c.hi, -n));
#else
  // Halves cut out by a mask (splitting by multiplication could overflow), the upper one shorter
  // where they differ, so that the partial products are exact.
  constexpr typename FloatTraits<T>::UInt upper_half =
      ~((typename FloatTraits<T>::UInt(1) << ((FloatTraits<T>::mantissa_bits + 2) / 2)) - 1);
  const T x_hi = bit_cast<T>(to_bits(x) & upper_half);
  const T c_hi = bit_cast<T>(to_bits(c.hi) & upper_half);
  const T x_lo = x - x_hi;
  const T c_lo = c.hi - c_hi;
  return (((x_hi * c_hi - n) + x_hi * c_lo) + x_lo * c_hi) + (x_lo * c_lo + x * c.lo);
#endif
}

/// Valid while |x * (c.hi + c.lo)| is below 2^21. NaN gives NaN.
template <class T>
MYOPS_FN SplitExp<T> split_exp2(T x, TwoFloat<T> c) {
  const T biased = multiply_add(x, c.hi, round_and_bias<T>);
  const T f = reduce(x, c, biased - round_and_bias<T>);
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

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
