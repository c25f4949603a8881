// SPDX-License-Identifier: Apache-2.0
// Elementwise operators with one input. To add one: write its functor here, add its name to
// MYOPS_ACTIVATION_OPS at the end, and add an OpSpec in python/myops/spec.py.
//
// A functor `template <class T> struct Name` (T is float or double) has
//   inputs, attributes           names and defaults, in schema order
//   Name(const double*)          folds the attribute values into constants
//   forward(x), backward(g, x), double_backward(h, g, x)   see Pass in op_info.hpp
// Each is templated on Range. A functor whose two ranges differ also has range_key(x) and
// range_limit(): a block is common when no element's key is above the limit. The driver picks per
// block; without the two it uses Range::common throughout. `static constexpr bool broadcasts =
// true` lets hosts broadcast the inputs after the first: see OpInfo.
#pragma once

#include <array>

#include "math/fmath.hpp"
#include "myops/op_info.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// Swish, y = x * sigmoid(beta * x) (Ramachandran, Zoph, Le 2017, "Searching for Activation
/// Functions"); beta 1 is SiLU, beta 1.702 is the quick form of GELU.
///
/// With e = exp(-beta x) and s = 1 / (1 + e):
///   y   = x / (1 + e)
///   y'  = s (1 + beta x (e s))            e s = 1 - s without cancellation
///   y'' = beta s (e s) (2 + beta x (e s - s))
/// Far from zero a negative beta is folded into the sign: swish(x; b) = -swish(-x; -b).
/// Limits: +inf -> +inf, -inf -> -0 (beta > 0); beta 0 is x / 2 everywhere; NaN stays NaN.
/// |beta| above half the largest value of T acts as that half.
///
/// Accuracy for f32 with FMA, over all floats: forward 2.5 ulp, backward 4 ulp + 6e-8 |g|.
template <class T>
struct Swish {
  using UInt = typename FloatTraits<T>::UInt;
  static constexpr std::array<const char*, 1> inputs{"x"};
  static constexpr std::array<AttributeInfo, 1> attributes{{{"beta", 1.0}}};

  T beta;
  UInt sign;          // the sign bit of beta
  TwoFloat<T> scale;  // -beta log2(e)
  T upper;            // above it e vanishes against 1; larger arguments would make e denormal
  T lower;            // below it y underflows to zero whatever x is
  T zero_below;       // like lower, but no value is below it when beta is 0
  UInt limit;         // range_key of the last x for which 2^n and 2^-n are normal

  MYOPS_FN explicit Swish(const double* attribute_values) {
    constexpr T largest = FloatTraits<T>::largest;
    constexpr T lowest_result = sizeof(T) == 4 ? T(195) : T(1460);
    constexpr T last_normal = sizeof(T) == 4 ? T(87) : T(708);
    beta = at_least(at_most(static_cast<T>(attribute_values[0]), largest / 2), -largest / 2);
    const T size = magnitude(beta);
    sign = beta < 0 ? FloatTraits<T>::sign_bit : UInt(0);
    scale = negative_log2_e_times(beta);
    upper = size > 0 ? at_most(T(64) / size, largest) : largest;
    lower = size > 0 ? -at_most(lowest_result / size, largest) : -largest;
    zero_below = size > 0 ? lower : -__builtin_inf();
    limit = to_bits(size > 0 ? at_most(last_normal / size, largest) : largest);
  }

  MYOPS_FN UInt range_key(T x) const { return to_bits(magnitude(x)); }
  MYOPS_FN UInt range_limit() const { return limit; }

  /// With Range::full everything is computed for positive beta.
  template <Range range>
  MYOPS_FN T oriented(T x) const {
    return is_full(range) ? flip_sign(x, sign) : x;
  }

  /// The pieces all passes share, at an oriented x.
  struct Terms {
    T z;                   // beta x, x clamped to [lower, upper]
    CappedPower<T> power;  // brings results of the tail back into the exponent's range
    T e;                   // exp(-beta x), times the shrink factors
    T denominator;         // 1 + e
  };

  template <Range range>
  MYOPS_FN static SplitExp<T> exponential(T x, TwoFloat<T> c) {
    if constexpr (is_brief(range)) {
      return split_exp2_brief(x, c);
    } else {
      return split_exp2(x, c);
    }
  }

  template <Range range>
  MYOPS_FN Terms terms(T x) const {
    Terms t;
    T clamped = x;
    if constexpr (is_full(range)) clamped = at_least(at_most(x, upper), lower);
    const SplitExp<T> split =
        exponential<range>(clamped, {oriented<range>(scale.hi), oriented<range>(scale.lo)});
    t.z = oriented<range>(beta) * clamped;
    t.power = cap_above<range>(split.biased);
    t.e = split.mantissa * t.power.power;
    t.denominator = multiply_add(split.mantissa, t.power.power, T(1));
    return t;
  }

  template <Range range>
  MYOPS_FN T forward(T x) const {
    x = oriented<range>(x);
    const Terms t = terms<range>(x);
    T numerator = x;
    if constexpr (is_full(range)) numerator = x < zero_below ? T(-0.0) : x;
    return oriented<range>(t.power.template rescale<range>(numerator / t.denominator));
  }

  template <Range range>
  MYOPS_FN T sigmoid(T x, const Terms& t) const {
    T numerator = T(1);
    if constexpr (is_full(range)) numerator = x < zero_below ? T(0) : T(1);
    return numerator / t.denominator;
  }

  template <Range range>
  MYOPS_FN T backward(T grad, T x) const {
    x = oriented<range>(x);
    const Terms t = terms<range>(x);
    const T s = sigmoid<range>(x, t);
    const T bracket = multiply_add(t.z, t.e * s, T(1));
    return t.power.template rescale<range>(grad * s * bracket);
  }

  template <Range range>
  MYOPS_FN T double_backward(T grad_grad, T grad, T x) const {
    x = oriented<range>(x);
    const Terms t = terms<range>(x);
    const T s = sigmoid<range>(x, t);
    const T one_minus_s = t.e * s;
    const T bracket = multiply_add(t.z, one_minus_s - s, T(2));
    const T second = oriented<range>(beta) * s * one_minus_s * bracket;
    return oriented<range>(grad_grad * grad * t.power.template rescale<range>(second));
  }
};

/// HardSwish, y = x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019, "Searching for MobileNetV3").
/// Computed so that it is finite for all finite x and 0 at -inf. At the corners -3 and 3 the
/// derivative is that of torch: 0 and 1.
///
/// Accuracy for f32, over all floats: forward 2 ulp, backward 2 ulp + 6e-8 |g|.
template <class T>
struct HardSwish {
  static constexpr std::array<const char*, 1> inputs{"x"};
  static constexpr std::array<AttributeInfo, 0> attributes{};

  MYOPS_FN explicit HardSwish(const double*) {}

  template <Range range>
  MYOPS_FN T forward(T x) const {
    const T clamped = at_least(x, T(-3));
    return clamped * (at_most(clamped + T(3), T(6)) * T(1.0 / 6));
  }

  template <Range range>
  MYOPS_FN T backward(T grad, T x) const {
    const T inside = multiply_add(x, T(1.0 / 3), T(0.5));
    const T below = x > T(-3) ? inside : T(0);
    const T slope = x < T(3) ? below : T(1);
    return grad * (x != x ? x : slope);
  }

  template <Range range>
  MYOPS_FN T double_backward(T grad_grad, T grad, T x) const {
    const T inside = x > T(-3) && x < T(3) ? T(1.0 / 3) : T(0);
    return grad_grad * grad * (x != x ? x : inside);
  }
};

/// Mish, y = x * tanh(log(1 + exp(x))) (Misra 2019, "Mish: A Self Regularized Non-Monotonic
/// Activation Function").
///
/// With e = exp(x), n = e (e + 2) and D = n + 2:
///   w   = tanh(softplus(x)) = n / D,   y = x w
///   w'  = 2 D' / D^2,                  D'  = 2 e (e + 1)
///   w'' = 2 (D'' - 2 D'^2 / D) / D^2,  D'' = 2 e (2 e + 1)
/// Limits: +inf -> +inf, -inf -> -0; NaN stays NaN.
///
/// Accuracy for f32 with FMA, over all floats: forward 4 ulp, backward 6 ulp + 1.2e-7 |g|.
template <class T>
struct Mish {
  using UInt = typename FloatTraits<T>::UInt;
  static constexpr std::array<const char*, 1> inputs{"x"};
  static constexpr std::array<AttributeInfo, 0> attributes{};

  // Above it w is 1; below the lower bound y underflows to zero.
  static constexpr T upper = sizeof(T) == 4 ? T(20) : T(40);
  static constexpr T lower = sizeof(T) == 4 ? T(-112) : T(-755);

  MYOPS_FN explicit Mish(const double*) {}

  MYOPS_FN UInt range_key(T x) const { return to_bits(x); }
  MYOPS_FN UInt range_limit() const { return to_bits(sizeof(T) == 4 ? T(-87) : T(-708)); }

  struct Terms {
    T clamped;
    CappedPower<T> power;
    T e;
    T n;
  };

  template <Range range>
  MYOPS_FN static Terms terms(T x) {
    Terms t;
    t.clamped = at_most(x, upper);
    if constexpr (is_full(range)) t.clamped = at_least(t.clamped, lower);
    const SplitExp<T> split = split_exp2(t.clamped, two_float<T>(log2_e_hi, log2_e_lo));
    t.power = cap_below<range>(split.biased);
    t.e = split.mantissa * t.power.power;
    t.n = t.e * (t.e + T(2));
    return t;
  }

  template <Range range>
  MYOPS_FN T forward(T x) const {
    const Terms t = terms<range>(x);
    T factor = x;
    if constexpr (is_full(range)) factor = x < lower ? T(-0.0) : x;
    return t.power.template rescale<range>(factor * (t.n / (t.n + T(2))));
  }

  template <Range range>
  MYOPS_FN T backward(T grad, T x) const {
    const Terms t = terms<range>(x);
    const T r = T(1) / (t.n + T(2));
    const T w_slope = T(4) * t.e * (t.e + T(1)) * r * r;
    return grad * t.power.template rescale<range>(multiply_add(t.clamped, w_slope, t.n * r));
  }

  template <Range range>
  MYOPS_FN T double_backward(T grad_grad, T grad, T x) const {
    const Terms t = terms<range>(x);
    const T r = T(1) / (t.n + T(2));
    const T d1 = T(2) * t.e * (t.e + T(1));
    const T d2 = T(2) * t.e * multiply_add(T(2), t.e, T(1));
    const T w_slope = T(2) * d1 * r * r;
    const T w_curve = T(2) * r * r * (d2 - T(2) * d1 * (d1 * r));
    const T second = multiply_add(t.clamped, w_curve, T(2) * w_slope);
    return grad_grad * grad * t.power.template rescale<range>(second);
  }
};

#define MYOPS_ACTIVATION_OPS(X) X(Swish, swish) X(HardSwish, hardswish) X(Mish, mish)

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
