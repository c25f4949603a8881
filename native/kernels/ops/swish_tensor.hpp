// SPDX-License-Identifier: Apache-2.0
// Swish whose coefficient is a tensor, so that it can be trained, per channel or otherwise. See
// activation.hpp for what a functor has to offer.
#pragma once

#include <array>

#include "math/fmath.hpp"
#include "myops/op_info.hpp"
#include "ops/gated.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// SwishTensor, y = x * sigmoid(beta * x) with a beta per element (Ramachandran, Zoph, Le 2017,
/// "Searching for Activation Functions", where beta is trained).
///
/// With z = beta x in twice the precision, t = exp(-|z|), s = sigmoid(z), o = 1 - s, each of them
/// 1 / (1 + t) or t / (1 + t), q = s o = t / (1 + t)^2 and b = 2 + z (o - s):
///   y_x    = s (1 + z o)      y_b    = x^2 q
///   y_xx   = beta q b         y_xb   = x q b         y_bb = x^3 q (o - s)
/// Limits: those of Swish; beta 0 is x / 2 also for infinite x; beta infinite is max(x, 0), or for
/// a negative one min(x, 0), but NaN at x = 0, as in the product. NaN in x or beta gives NaN.
///
/// Every element has its own range, so there is no common one to check for: the arithmetic is that
/// of the full range throughout.
///
/// Accuracy for f32 with FMA, over all floats: forward 4 ulp.
/// Derivatives by beta are 0 for |z| above most_z, where for |x| above 1e35 (f64: 1e300) x^2 q or
/// x^3 q may not yet have vanished.
template <class T>
struct SwishTensor {
  static constexpr std::array<const char*, 2> inputs{"x", "beta"};
  static constexpr std::array<AttributeInfo, 0> attributes{};
  static constexpr bool broadcasts = true;

  // exp(-|z|) above it makes zero of the largest x. Such that 2^f is above 1 in split_exp2:
  // t stays normal where |z| is held at it.
  static constexpr T most_z = sizeof(T) == 4 ? T(194.6) : T(1459.5);

  MYOPS_FN explicit SwishTensor(const double*) {}

  struct Terms {
    T size;                // |z|; above most_z, t stands for zero
    T z;                   // held at most_z
    CappedPower<T> power;  // of t; without it t stays large enough to be normal
    T t;
    T one_minus_t;
    T inverse;  // 1 / (1 + t)

    // No bool is kept: GCC would give up the loop.
    MYOPS_FN T s() const { return (z < T(0) ? t : T(1)) * inverse; }
    MYOPS_FN T o() const { return (z < T(0) ? T(1) : t) * inverse; }
    MYOPS_FN T o_minus_s() const { return (z < T(0) ? one_minus_t : -one_minus_t) * inverse; }
    MYOPS_FN T q() const { return t * inverse * inverse; }

    /// value * t's missing factors for z < 0; for z >= 0 the t in `value` is an addend that
    /// vanishes.
    MYOPS_FN T rescale_negative(T value) const {
      return z < T(0) ? power.template rescale<Range::full>(value) : value;
    }

    /// `value`, or 0 where t stands for zero: infinity times that zero would be NaN.
    MYOPS_FN T unless_zero(T value) const { return size > most_z ? T(0) : value; }
  };

  MYOPS_FN static Terms terms(T x, T beta) {
    constexpr TwoFloat<T> log2_e = two_float<T>(log2_e_hi, log2_e_lo);
    Terms r;
    // 0 * inf is NaN, but beta 0 is the line x / 2.
    constexpr T largest = FloatTraits<T>::largest;
    const T finite = at_least(at_most(x, largest), -largest);
    TwoFloat<T> z = product(beta, beta == T(0) ? finite : x);
    r.size = magnitude(z.hi);
    z.hi = at_least(at_most(z.hi, most_z), -most_z);
    z.lo = r.unless_zero(z.lo);  // of an infinite product it is NaN
    r.z = z.hi;
    const auto positive = ~to_bits(z.hi) & FloatTraits<T>::sign_bit;
    const TwoFloat<T> exponent =
        product(TwoFloat<T>{flip_sign(z.hi, positive), flip_sign(z.lo, positive)}, log2_e);
    const SplitExp<T> split = split_exp2(exponent);
    r.power = cap_below<Range::full>(split.biased);
    r.t = split.mantissa * r.power.power;
    // Where 2^n is 1, t = 1 + f slope(f): its distance from 1 is there before it is rounded away.
    const T f = (exponent.hi - (split.biased - round_and_bias<T>)) + exponent.lo;
    r.one_minus_t = split.biased == round_and_bias<T> ? -f * exp2_slope(f) : T(1) - r.t;
    r.inverse = T(1) / (T(1) + r.t);
    return r;
  }

  template <Range range>
  MYOPS_FN T forward(T x, T beta) const {
    const Terms r = terms(x, beta);
    const T zero = bit_cast<T>(to_bits(x) & FloatTraits<T>::sign_bit);
    const T numerator = r.size > most_z ? zero : x;
    return r.rescale_negative((r.z < T(0) ? numerator * r.t : x) / (T(1) + r.t));
  }

  template <Range range>
  MYOPS_FN Pair<T> backward(T grad, T x, T beta) const {
    const Terms r = terms(x, beta);
    const T bracket = multiply_add(r.z, r.o(), T(1));
    const T finite = r.unless_zero(x);
    // A factor of t's with each x: x^2 may overflow where x^2 q does not.
    const T square = (finite * r.power.shrink_1) * (finite * r.q() * r.power.shrink_2);
    return {r.rescale_negative(grad * (r.s() * bracket)), grad * square};
  }

  template <Range range>
  MYOPS_FN Pair<T> double_backward(T h_x, T h_beta, T grad, T x, T beta) const {
    const Terms r = terms(x, beta);
    const T finite = r.unless_zero(x);
    const T q = r.q();
    const T o_minus_s = r.o_minus_s();
    const T bracket = q * multiply_add(r.z, o_minus_s, T(2));
    const T xx = r.power.template rescale<Range::full>(r.unless_zero(beta) * bracket);
    const T xb = r.power.template rescale<Range::full>(finite * bracket);
    const T bb = (finite * r.power.shrink_1) * (finite * (q * o_minus_s) * r.power.shrink_2);
    return {grad * multiply_add(h_x, xx, h_beta * xb),
            grad * multiply_add(h_x, xb, h_beta * (finite * bb))};
  }
};

#define MYOPS_SWISH_TENSOR_OPS(X) X(SwishTensor, swish_tensor)

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
