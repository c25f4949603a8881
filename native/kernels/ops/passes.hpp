// SPDX-License-Identifier: Apache-2.0
// Calling a functor's passes: what the drivers of all devices share.
#pragma once

#include "math/portable.hpp"
#include "myops/op_info.hpp"
#include "ops/gated.hpp"

namespace myops {
inline namespace MYOPS_ISA_NAME {

/// How many arrays a pass of an operator with `inputs` inputs reads and writes.
template <class Op>
inline constexpr int input_count = static_cast<int>(Op::inputs.size());
template <class Op, Pass pass>
inline constexpr int pass_inputs = pass == Pass::forward    ? input_count<Op>
                                   : pass == Pass::backward ? input_count<Op> + 1
                                                            : 2 * input_count<Op> + 1;
template <class Op, Pass pass>
inline constexpr int pass_outputs = pass == Pass::forward ? 1 : input_count<Op>;

/// Results that are rounded to a half type may be computed more briefly, but for derivatives: they
/// go through zero, close to which a relative error does not do.
template <Pass pass, class Storage>
inline constexpr bool is_brief_pass = pass == Pass::forward && sizeof(Storage) == 2;

template <Pass pass, Range range, class Op, class... Values>
MYOPS_FN auto apply(const Op& op, Values... values) {
  if constexpr (pass == Pass::forward) {
    return op.template forward<range>(values...);
  } else if constexpr (pass == Pass::backward) {
    return op.template backward<range>(values...);
  } else {
    return op.template double_backward<range>(values...);
  }
}

template <class T>
MYOPS_FN void store(T value, T* const (&out)[1], int i) {
  out[0][i] = value;
}

template <class T>
MYOPS_FN void store(Pair<T> value, T* const (&out)[2], int i) {
  out[0][i] = value.first;
  out[1][i] = value.second;
}

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
