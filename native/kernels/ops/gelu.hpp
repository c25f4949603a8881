// SPDX-License-Identifier: Apache-2.0
// GELU in its two forms (Hendrycks, Gimpel 2016, "Gaussian Error Linear Units"). See activation.hpp
// for what a functor has to offer.
#pragma once

#include <array>

#include "math/fmath.hpp"
#include "myops/op_info.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// erfc(a / sqrt(2)) / 2 * exp(a^2 / 2) * (a + 3) at t = (a - 3) / (a + 3), for 0 <= a <= 15.
/// Relative error 4e-8. f64: with 5 in place of 3, for 0 <= a <= 40, relative error 6e-17.
MYOPS_FN float scaled_tail(float t) {
  float p = 0x1.55f4c6p-15f;
  p = multiply_add(p, t, -0x1.c76b7cp-13f);
  p = multiply_add(p, t, -0x1.ea94e4p-11f);
  p = multiply_add(p, t, 0x1.0e6932p-10f);
  p = multiply_add(p, t, 0x1.c66946p-8f);
  p = multiply_add(p, t, -0x1.56fe8ep-7f);
  p = multiply_add(p, t, -0x1.832284p-5f);
  p = multiply_add(p, t, 0x1.d713cep-3f);
  p = multiply_add(p, t, -0x1.04c730p-1f);
  return multiply_add(p, t, 0x1.754a74p-1f);
}

MYOPS_FN double scaled_tail(double t) {
  double p = -0x1.8d6f2393e8a27p-33;
  p = multiply_add(p, t, 0x1.d04c406715840p-30);
  p = multiply_add(p, t, 0x1.0771b8d6722dfp-27);
  p = multiply_add(p, t, -0x1.3a33e415385dap-27);
  p = multiply_add(p, t, -0x1.1ad198b314e3cp-24);
  p = multiply_add(p, t, 0x1.6990eb9e16b58p-25);
  p = multiply_add(p, t, 0x1.d0e9a77b4fdcep-22);
  p = multiply_add(p, t, -0x1.6953c53876a56p-22);
  p = multiply_add(p, t, -0x1.73ab1fe49c4b4p-19);
  p = multiply_add(p, t, 0x1.0b26d911af570p-18);
  p = multiply_add(p, t, 0x1.17dd09c920f56p-16);
  p = multiply_add(p, t, -0x1.a170d25216a98p-15);
  p = multiply_add(p, t, -0x1.f2145fdfd5bd4p-15);
  p = multiply_add(p, t, 0x1.1daf1d4fc84f5p-11);
  p = multiply_add(p, t, -0x1.a25037dc79cd0p-11);
  p = multiply_add(p, t, -0x1.88590eab49716p-9);
  p = multiply_add(p, t, 0x1.54b4d4f4c511ep-6);
  p = multiply_add(p, t, -0x1.1b1c254c99e8bp-4);
  p = multiply_add(p, t, 0x1.51f6329f0171ep-3);
  p = multiply_add(p, t, -0x1.410ed5f875a85p-2);
  p = multiply_add(p, t, 0x1.fb31653876f92p-2);
  p = multiply_add(p, t, -0x1.54ad03f27ca17p-1);
  return multiply_add(p, t, 0x1.89d3abe1f95aep-1);
}

/// Gelu, y = x * Phi(x), Phi the standard normal distribution function.
///
/// With a = |x|, e = exp(-a^2 / 2), the upper tail Q = erfc(a / sqrt(2)) / 2 = q e and the density
/// phi = e / sqrt(2 pi):
///   y   = max(x, 0) - a Q
///   y'  = Phi + x phi,  Phi = Q for x < 0 and 1 - Q else
///   y'' = phi (2 - x^2)
/// Limits: +inf -> +inf, -inf -> -0; NaN stays NaN.
///
/// Accuracy for f32 with FMA, over all floats: forward 5 ulp, backward 6 ulp + 1.2e-7 |g|.
template <class T>
struct Gelu {
  using UInt = typename FloatTraits<T>::UInt;
  static constexpr std::array<const char*, 1> inputs{"x"};
  static constexpr std::array<AttributeInfo, 0> attributes{};

  static constexpr T center = sizeof(T) == 4 ? T(3) : T(5);
  static constexpr T largest = sizeof(T) == 4 ? T(15) : T(39.5);  // beyond it a Q underflows

  MYOPS_FN explicit Gelu(const double*) {}

  MYOPS_FN UInt range_key(T x) const { return to_bits(magnitude(x)); }
  MYOPS_FN UInt range_limit() const { return to_bits(sizeof(T) == 4 ? T(13) : T(37.5)); }

  struct Terms {
    T a;
    CappedPower<T> power;
    T e;
    T q;
  };

  template <Range range>
  MYOPS_FN static Terms terms(T x) {
    constexpr TwoFloat<T> scale = two_float<T>(-log2_e_hi / 2, -log2_e_lo / 2);
    Terms t;
    t.a = magnitude(x);
    if constexpr (is_full(range)) t.a = at_most(t.a, largest);
    const SplitExp<T> split = split_exp2(product(product(t.a, t.a), scale));
    t.power = cap_below<range>(split.biased);
    t.e = split.mantissa * t.power.power;
    const T inverse = T(1) / (t.a + center);
    t.q = scaled_tail((t.a - center) * inverse) * inverse;
    return t;
  }

  template <Range range>
  MYOPS_FN T forward(T x) const {
    const Terms t = terms<range>(x);
    // a q first: Q alone may be denormal.
    return (x < T(0) ? T(-0.0) : x) - t.power.template rescale<range>(t.a * t.q * t.e);
  }

  static constexpr T inverse_sqrt_2_pi = T(0x1.9884533d43651p-2);

  template <Range range>
  MYOPS_FN T backward(T grad, T x) const {
    const Terms t = terms<range>(x);
    const T q = x < T(0) ? t.q : -t.q;
    const T signed_a = x < T(0) ? -t.a : t.a;
    const T rest = multiply_add(signed_a, inverse_sqrt_2_pi, q) * t.e;
    return grad * ((x < T(0) ? T(0) : T(1)) + t.power.template rescale<range>(rest));
  }

  template <Range range>
  MYOPS_FN T double_backward(T grad_grad, T grad, T x) const {
    const Terms t = terms<range>(x);
    const T second = inverse_sqrt_2_pi * t.e * multiply_add(-t.a, t.a, T(2));
    return grad_grad * grad * t.power.template rescale<range>(second);
  }
};

/// GeluTanh, y = x * (1 + tanh(u)) / 2 = x * sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
///
/// With v = 2 u' and s, e as in Swish:
///   y'  = s (1 + x v (e s))
///   y'' = s (e s) (2 v + x v' + x v^2 (e s - s))
/// Limits: +inf -> +inf, -inf -> -0; NaN stays NaN.
///
/// Accuracy for f32 with FMA, over all floats: forward 4 ulp, backward 6 ulp + 1.2e-7 |g|.
template <class T>
struct GeluTanh {
  using UInt = typename FloatTraits<T>::UInt;
  static constexpr std::array<const char*, 1> inputs{"x"};
  static constexpr std::array<AttributeInfo, 0> attributes{};

  static constexpr double cubic = 0.044715;
  static constexpr double slope = 0x1.9884533d43651p+0;  // 2 sqrt(2 / pi)
  // Above it e vanishes against 1; below the lower bound y underflows to zero.
  static constexpr T upper = T(10);
  static constexpr T lower = sizeof(T) == 4 ? T(-11.5) : T(-22.5);

  MYOPS_FN explicit GeluTanh(const double*) {}

  MYOPS_FN UInt range_key(T x) const { return to_bits(x); }
  MYOPS_FN UInt range_limit() const { return to_bits(sizeof(T) == 4 ? T(-9.9) : T(-21)); }

  struct Terms {
    T clamped;
    CappedPower<T> power;
    T e;
    T denominator;
  };

  template <Range range>
  MYOPS_FN static Terms terms(T x) {
    // -2 sqrt(2 / pi) log2(e)
    constexpr TwoFloat<T> scale = two_float<T>(-0x1.26aec21bce759p+1, -0x1.2ed2859b4314fp-53);
    Terms t;
    t.clamped = at_most(x, upper);
    if constexpr (is_full(range)) t.clamped = at_least(t.clamped, lower);
    const TwoFloat<T> square = product(t.clamped, t.clamped);
    const TwoFloat<T> factor = sum(T(1), product(square, two_float<T>(cubic, 0)));
    const SplitExp<T> split =
        split_exp2(product(product(TwoFloat<T>{t.clamped, T(0)}, factor), scale));
    t.power = cap_above<range>(split.biased);
    t.e = split.mantissa * t.power.power;
    t.denominator = multiply_add(split.mantissa, t.power.power, T(1));
    return t;
  }

  template <Range range>
  MYOPS_FN T forward(T x) const {
    const Terms t = terms<range>(x);
    T numerator = x;
    if constexpr (is_full(range)) numerator = x < lower ? T(-0.0) : x;
    return t.power.template rescale<range>(numerator / t.denominator);
  }

  template <Range range>
  MYOPS_FN T sigmoid(T x, const Terms& t) const {
    T numerator = T(1);
    if constexpr (is_full(range)) numerator = x < lower ? T(0) : T(1);
    return numerator / t.denominator;
  }

  template <Range range>
  MYOPS_FN T backward(T grad, T x) const {
    const Terms t = terms<range>(x);
    const T s = sigmoid<range>(x, t);
    const T v = multiply_add(t.clamped * t.clamped, T(3 * cubic * slope), T(slope));
    const T bracket = multiply_add(t.clamped * v, t.e * s, T(1));
    return t.power.template rescale<range>(grad * s * bracket);
  }

  template <Range range>
  MYOPS_FN T double_backward(T grad_grad, T grad, T x) const {
    const Terms t = terms<range>(x);
    const T s = sigmoid<range>(x, t);
    const T one_minus_s = t.e * s;
    const T v = multiply_add(t.clamped * t.clamped, T(3 * cubic * slope), T(slope));
    const T x_v_slope = t.clamped * t.clamped * T(6 * cubic * slope);
    const T linear = multiply_add(T(2), v, x_v_slope);
    const T bracket = multiply_add(t.clamped * v * v, one_minus_s - s, linear);
    return grad_grad * grad * t.power.template rescale<range>(s * one_minus_s * bracket);
  }
};

#define MYOPS_GELU_OPS(X) X(Gelu, gelu) X(GeluTanh, gelu_tanh)

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
