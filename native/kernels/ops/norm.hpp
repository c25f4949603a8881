// SPDX-License-Identifier: Apache-2.0
// Normalization over rows: what is made of a row's sum of squares. The drivers sum, and scale.
#pragma once

#include <array>
#include <cstddef>

#include "math/portable.hpp"
#include "myops/op_info.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// Found beside at::sqrt: the formulas below take doubles, and torch's tensors where a derivative
/// is composed.
MYOPS_FN double sqrt(double x) { return __builtin_sqrt(x); }

// A norm multiplies a row by a factor that depends on the mean q of the row's squares, and by the
// weights:
//   y                = x factor(q) weight
//   d<g, y>/dx       = factor(q) (g weight - x pull(q) mean(g weight x)),  pull = -2 factor' /
//   factor d<g, y>/dweight  = g x factor(q), summed over the rows
// A functor has `factor` and `pull`. The drivers may have scaled the row by a power of two so that
// squares stay in the exponent range: with z = scale x and mean_square = mean(z^2) a functor
// returns factor(mean_square / scale^2) / scale and pull(mean_square / scale^2) / scale^2, written
// so that nothing in between overflows. `floor` is what the mean of squares is added to: beside it
// the squares of tiny rows do not count. 0 where there is no such thing.

/// RMSNorm, y = x / sqrt(mean(x^2) + eps) * weight over the elements of a row (Zhang, Sennrich
/// 2019, "Root Mean Square Layer Normalization").
struct RMSNorm {
  using Formula = RMSNorm;
  static constexpr std::array<const char*, 2> inputs{"x", "weight"};
  static constexpr std::array<const char*, 1> outputs{"y"};
  static constexpr std::array<AttributeInfo, 1> attributes{{{"eps", 1e-6, 0.0}}};

  double eps;
  MYOPS_FN explicit RMSNorm(const double* values) : eps(values[0]) {}

  template <class S>
  MYOPS_FN S factor(const S& mean_square, double scale) const {
    return 1 / sqrt(mean_square + eps * scale * scale);
  }

  template <class S>
  MYOPS_FN S pull(const S& mean_square, double scale) const {
    return 1 / (mean_square + eps * scale * scale);
  }

  MYOPS_FN double floor() const { return eps; }
};

/// RMSNorm of x + residual, with that sum as second output: the joint of a residual network's
/// branches.
struct AddRMSNorm {
  using Formula = RMSNorm;
  static constexpr std::array<const char*, 3> inputs{"x", "residual", "weight"};
  static constexpr std::array<const char*, 2> outputs{"y", "sum"};
  static constexpr auto attributes = RMSNorm::attributes;
};

#define MYOPS_NORM_OPS(X) X(RMSNorm, rms_norm) X(AddRMSNorm, add_rms_norm)

/// What the drivers compute per element, x scaled like the row.
struct NormElement {
  template <class T>
  static MYOPS_FN T forward(T x, T weight, T factor) {
    return x * factor * weight;
  }

  template <class T>
  static MYOPS_FN T backward(T grad, T x, T weight, T factor, T pulled_mean) {
    return factor * (grad * weight - x * pulled_mean);
  }

  template <class T>
  static MYOPS_FN T weight_backward(T grad, T x, T factor) {
    return grad * (x * factor);
  }
};

enum class NormIndex : std::size_t {
#define MYOPS_INDEX(Name, torch_name) Name,
  MYOPS_NORM_OPS(MYOPS_INDEX)
#undef MYOPS_INDEX
};

#define MYOPS_ONE(Name, torch_name) +1
inline constexpr std::size_t norm_count = 0 MYOPS_NORM_OPS(MYOPS_ONE);
#undef MYOPS_ONE

/// The functor behind an index.
template <NormIndex index>
struct NormOf;
#define MYOPS_FUNCTOR(Name, torch_name) \
  template <>                           \
  struct NormOf<NormIndex::Name> {      \
    using type = Name;                  \
  };
MYOPS_NORM_OPS(MYOPS_FUNCTOR)
#undef MYOPS_FUNCTOR

/// The norm without residual that has the formula of another one.
template <class Formula>
struct NormIndexOf;
#define MYOPS_FUNCTOR(Name, torch_name)                 \
  template <>                                           \
  struct NormIndexOf<Name> {                            \
    static constexpr NormIndex value = NormIndex::Name; \
  };
MYOPS_NORM_OPS(MYOPS_FUNCTOR)
#undef MYOPS_FUNCTOR

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
