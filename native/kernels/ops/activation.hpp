// SPDX-License-Identifier: Apache-2.0
// Elementwise operators with one input. To add one: write its functor here, add its name to
// MYOPS_ACTIVATION_OPS at the end, and add an OpSpec in python/myops/spec.py.
//
// A functor `template <class T> struct Name` (T is float or double) has
//   inputs, attributes           names and defaults, in schema order
//   Name(const double*)          folds the attribute values into constants
//   forward(x), backward(g, x), double_backward(h, g, x)   see Pass in op_info.hpp
// Each is templated on Range. `Range::common` may assume range_key(x) <= range_limit() for every
// element; `Range::full` holds for all inputs and gives the same bits on the common ones. The
// driver picks per block.
#pragma once

#include <array>

#include "math/fmath.hpp"
#include "myops/op_info.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

enum class Range { common, full };

/// Swish, y = x * sigmoid(beta * x) (Ramachandran, Zoph, Le 2017, "Searching for Activation
/// Functions"); beta 1 is SiLU, beta 1.702 is the quick form of GELU.
///
/// With e = exp(-beta x) and s = 1 / (1 + e):
///   y   = x / (1 + e)
///   y'  = s (1 + beta x (e s))            e s = 1 - s without cancellation
///   y'' = beta s (e s) (2 + beta x (e s - s))
/// A negative beta is folded into the sign: swish(x; b) = -swish(-x; -b).
/// Limits: +inf -> +inf, -inf -> -0 (beta > 0); beta 0 is x / 2 everywhere; NaN stays NaN.
/// |beta| above half the largest value of T acts as that half.
///
/// Accuracy for f32 with FMA, over all floats: forward 2.5 ulp, backward 4 ulp + 6e-8 |g|.
template <class T>
struct Swish {
  using UInt = typename FloatTraits<T>::UInt;
  static constexpr std::array<const char*, 1> inputs{"x"};
  static constexpr std::array<AttributeInfo, 1> attributes{{{"beta", 1.0}}};

  T beta;             // |beta|
  UInt sign;          // the sign bit of beta
  TwoFloat<T> scale;  // -|beta| log2(e)
  T upper;            // above it e vanishes against 1; larger arguments would make e denormal
  T lower;            // below it y underflows to zero whatever x is
  T zero_below;       // like lower, but no value is below it when beta is 0
  UInt limit;         // range_key of the last x for which 2^n is finite

  MYOPS_FN explicit Swish(const double* attribute_values) {
    const T value = static_cast<T>(attribute_values[0]);
    constexpr T largest = FloatTraits<T>::largest;
    constexpr T lowest_result = sizeof(T) == 4 ? T(195) : T(1460);
    constexpr T last_normal = sizeof(T) == 4 ? T(87) : T(708);
    sign = value < 0 ? FloatTraits<T>::sign_bit : UInt(0);
    beta = at_most(flip_sign(value, to_bits(value) & FloatTraits<T>::sign_bit), largest / 2);
    scale = negative_log2_e_times(beta);
    upper = beta > 0 ? at_most(T(64) / beta, largest) : largest;
    lower = beta > 0 ? -at_most(lowest_result / beta, largest) : -largest;
    zero_below = beta > 0 ? lower : -__builtin_inf();
    limit = to_bits(beta > 0 ? -at_most(last_normal / beta, largest) : -largest);
  }

  MYOPS_FN UInt range_key(T x) const { return to_bits(x) ^ sign; }
  MYOPS_FN UInt range_limit() const { return limit; }

  /// The pieces all passes share, at x already flipped to positive beta.
  struct Terms {
    T clamped;      // x within [lower, upper]
    T e;            // exp(-beta x) * shrink_1 * shrink_2
    T denominator;  // 1 + e
    T shrink_1;     // powers of two that bring e back into the exponent's range;
    T shrink_2;     // two of them, because one could itself underflow
  };

  template <Range range>
  MYOPS_FN Terms terms(T x) const {
    Terms t;
    t.clamped = at_most(x, upper);
    if constexpr (range == Range::full) t.clamped = at_least(t.clamped, lower);
    const SplitExp<T> split = split_exp2(t.clamped, scale);
    T biased = split.biased;
    t.shrink_1 = t.shrink_2 = T(1);
    if constexpr (range == Range::full) {
      constexpr T last = round_and_bias<T> + T(FloatTraits<T>::bias - 1);
      biased = at_most(split.biased, last);
      const UInt excess = to_bits(split.biased) - to_bits(biased);
      const UInt half = excess >> 1;
      t.shrink_1 = exp2_minus<T>(half);
      t.shrink_2 = exp2_minus<T>(excess - half);
    }
    const T power = exp2_of(biased);
    t.e = split.mantissa * power;
    t.denominator = multiply_add(split.mantissa, power, T(1));
    return t;
  }

  template <Range range>
  MYOPS_FN static T rescale(T y, const Terms& t) {
    if constexpr (range == Range::full) return y * t.shrink_1 * t.shrink_2;
    return y;
  }

  template <Range range>
  MYOPS_FN T forward(T x) const {
    x = flip_sign(x, sign);
    const Terms t = terms<range>(x);
    T numerator = x;
    if constexpr (range == Range::full) numerator = x < zero_below ? T(-0.0) : x;
    return flip_sign(rescale<range>(numerator / t.denominator, t), sign);
  }

  template <Range range>
  MYOPS_FN T sigmoid(T x, const Terms& t) const {
    T numerator = T(1);
    if constexpr (range == Range::full) numerator = x < zero_below ? T(0) : T(1);
    return numerator / t.denominator;
  }

  template <Range range>
  MYOPS_FN T backward(T grad, T x) const {
    x = flip_sign(x, sign);
    const Terms t = terms<range>(x);
    const T s = sigmoid<range>(x, t);
    const T bracket = multiply_add(beta * t.clamped, t.e * s, T(1));
    return rescale<range>(grad * s * bracket, t);
  }

  template <Range range>
  MYOPS_FN T double_backward(T grad_grad, T grad, T x) const {
    x = flip_sign(x, sign);
    const Terms t = terms<range>(x);
    const T s = sigmoid<range>(x, t);
    const T one_minus_s = t.e * s;
    const T bracket = multiply_add(beta * t.clamped, one_minus_s - s, T(2));
    const T second = beta * s * one_minus_s * bracket;
    return flip_sign(grad_grad * grad * rescale<range>(second, t), sign);
  }
};

#define MYOPS_ACTIVATION_OPS(X) X(Swish, swish)

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
