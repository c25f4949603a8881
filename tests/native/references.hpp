// SPDX-License-Identifier: Apache-2.0
// What operators should compute, in long double, and how far their kernels may be off. The formulas
// are written from the definition, not from the kernels. An entry is optional: without one, the
// op's narrower kernels are judged against its own f64 kernel, which the Python tests judge.
#pragma once

#include <string_view>
#include <vector>

#include "myops/op_info.hpp"

namespace myops::tests {

struct Expected {
  long double value;
  /// How much of the terms cancelled: the sum of their absolute values less |value|. An error in
  /// ulps of the rest that is left says nothing.
  long double cancelled;
  /// An error that is allowed whatever the value, where a limit or an underflow is documented.
  long double absolute;
};

/// A pass from its inputs to its outputs (order: Pass in op_info.hpp). The caller has rounded the
/// attributes to the compute type as the kernels do.
using Formula = void (*)(const long double* inputs, const long double* attributes,
                         Expected* outputs);

/// Each kernel has |error| <= ulps * ulp(value) + slack * cancelled + absolute.
struct Bound {
  double ulps;
  double slack;
};

/// Kernels without fused multiply-add round more often and may be off by this much more.
inline constexpr double ulps_without_fma = 0.3;

struct Interval {
  long double low;
  long double high;
};

struct OpReference {
  std::string_view op;
  Formula formula[pass_count];
  Bound bound[dtype_count][pass_count];
  /// What the functor's comment promises for f32 with FMA: ulps, and slack times the product of
  /// the gradients. No ulps: no promise.
  Bound stated[pass_count];
  std::vector<std::vector<double>> attribute_sets;
  /// Where the function is neither zero nor a straight line; sampled more densely.
  Interval (*bend)(DType dtype, const long double* attributes);
};

struct OpReferenceList {
  const OpReference* first;
  std::size_t count;
  const OpReference* begin() const { return first; }
  const OpReference* end() const { return first + count; }
};
OpReferenceList references();

/// Null when the op has no entry: see references.cpp for how to add one.
const OpReference* find_reference(std::string_view op);

/// The entry's attribute sets, or some around the defaults. The defaults come first.
std::vector<std::vector<double>> attribute_sets(const OpInfo& op);

/// The entry's bend, or one wide enough for anything built out of exp.
Interval bend_of(const OpInfo& op, DType dtype, const std::vector<double>& attributes);

/// Whether the kernels in use fuse multiply and add.
bool kernels_have_fma();

/// The bound of the kernel in use: the entry's, or one that fits every op.
Bound bound_of(const OpInfo& op, DType dtype, Pass pass);

/// Attribute values rounded to the type the kernel computes in.
std::vector<long double> rounded_attributes(DType dtype, const std::vector<double>& values);

}  // namespace myops::tests
