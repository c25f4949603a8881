// SPDX-License-Identifier: Apache-2.0
// Gated linear units, y = f(gate) * x for an activation f (Shazeer 2020, "GLU Variants Improve
// Transformer"). The activation's functor is the only formula; the product rule does the rest.
#pragma once

#include <array>
#include <type_traits>

#include "ops/activation.hpp"
#include "ops/gelu.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// One value per input of a gated operator.
template <class T>
struct Pair {
  T first;
  T second;
};

/// The common range of the gate: there where the activation has one.
template <class Activation, class T, class = void>
struct GateRange {
  Activation activation;
};

template <class Activation, class T>
struct GateRange<Activation, T, std::void_t<decltype(&Activation::range_limit)>> {
  using UInt = typename FloatTraits<T>::UInt;
  Activation activation;

  MYOPS_FN UInt range_key(T gate) const { return activation.range_key(gate); }
  MYOPS_FN UInt range_limit() const { return activation.range_limit(); }
};

template <template <class> class Activation, class T>
struct Gated : GateRange<Activation<T>, T> {
  using GateRange<Activation<T>, T>::activation;
  static constexpr std::array<const char*, 2> inputs{"gate", "x"};
  static constexpr auto attributes = Activation<T>::attributes;

  MYOPS_FN explicit Gated(const double* attribute_values)
      : GateRange<Activation<T>, T>{Activation<T>(attribute_values)} {}

  template <Range range>
  MYOPS_FN T forward(T gate, T x) const {
    return activation.template forward<range>(gate) * x;
  }

  template <Range range>
  MYOPS_FN Pair<T> backward(T grad, T gate, T x) const {
    return {activation.template backward<range>(grad * x, gate),
            grad * activation.template forward<range>(gate)};
  }

  /// Of h_gate g x f'(gate) + h_x g f(gate), with respect to gate and x.
  template <Range range>
  MYOPS_FN Pair<T> double_backward(T h_gate, T h_x, T grad, T gate, T x) const {
    const T curve = activation.template double_backward<range>(h_gate, grad * x, gate);
    return {curve + activation.template backward<range>(h_x * grad, gate),
            activation.template backward<range>(h_gate * grad, gate)};
  }
};

/// y = silu(gate) * x, or with beta swish(gate; beta) * x.
template <class T>
struct SwiGLU : Gated<Swish, T> {
  using Gated<Swish, T>::Gated;
};

/// y = gelu(gate) * x.
template <class T>
struct GeGLU : Gated<Gelu, T> {
  using Gated<Gelu, T>::Gated;
};

#define MYOPS_GATED_OPS(X) X(SwiGLU, swiglu) X(GeGLU, geglu)

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
