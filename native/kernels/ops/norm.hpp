// SPDX-License-Identifier: Apache-2.0
// Normalization over rows: what happens per row and per element. The driver sums.
#pragma once

#include <array>

#include "math/portable.hpp"
#include "myops/op_info.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// RMSNorm, y = x / sqrt(mean(x^2) + eps) * weight over the elements of a row (Zhang, Sennrich
/// 2019, "Root Mean Square Layer Normalization").
///
/// With r = 1 / sqrt(mean(x^2) + eps) and m = mean(g weight x) r^2:
///   d<g, y>/dx       = r (g weight - x m)
///   d<g, y>/dweight  = g x r, summed over the rows
/// The mean, r and m are scalars in double; elements are in T.
struct RMSNorm {
  static constexpr std::array<const char*, 2> inputs{"x", "weight"};
  static constexpr std::array<const char*, 1> outputs{"y"};
  static constexpr std::array<AttributeInfo, 1> attributes{{{"eps", 1e-6, 0.0}}};

  static MYOPS_FN double inverse_rms(double sum_of_squares, double width, double eps) {
    return 1 / __builtin_sqrt(sum_of_squares / width + eps);
  }

  /// m, from the row's sum of g weight x.
  static MYOPS_FN double mean_product(double sum_of_products, double width, double inverse_rms) {
    return sum_of_products / width * inverse_rms * inverse_rms;
  }

  template <class T>
  static MYOPS_FN T forward(T x, T weight, T inverse_rms) {
    return x * inverse_rms * weight;
  }

  template <class T>
  static MYOPS_FN T backward(T grad, T x, T weight, T inverse_rms, T mean_product) {
    return inverse_rms * (grad * weight - x * mean_product);
  }

  template <class T>
  static MYOPS_FN T weight_backward(T grad, T x, T inverse_rms) {
    return grad * (x * inverse_rms);
  }
};

/// RMSNorm of x + residual, with that sum as second output: the joint of a residual network's
/// branches.
struct AddRMSNorm : RMSNorm {
  static constexpr std::array<const char*, 3> inputs{"x", "residual", "weight"};
  static constexpr std::array<const char*, 2> outputs{"y", "sum"};
};

#define MYOPS_NORM_OPS(X) X(RMSNorm, rms_norm) X(AddRMSNorm, add_rms_norm)

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
