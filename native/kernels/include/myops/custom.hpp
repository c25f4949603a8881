// SPDX-License-Identifier: Apache-2.0
// Operators that are a function over whole tensors, for projects of their own. One is a struct with
//
//   inputs, outputs, attributes   names and defaults, in schema order, as std::array
//   template <class Int> static Status shapes(const Sizes<Int>* in, const double* attributes,
//                                             Sizes<Int>* out)
//       the results' sizes. Int is std::int64_t, or where sizes are not known yet Dim or torch's
//       SymInt: compute with + - * / only, and compare only to return an error.
//   static Status forward(const TensorView* in, const TensorView* out, const double* attributes)
//   static Status backward(const TensorView* in, const TensorView* out, const double* attributes)
//       in: the gradients of the outputs, then the inputs; out: the gradients of the inputs
//
// All tensors of a call have one dtype, float or double. Functions are called from several threads
// at once and must not keep state; exceptions become errors of the host.
#pragma once

#include <cstdint>
#include <vector>

#include "myops/op_info.hpp"
#include "myops/status.hpp"

namespace myops {

/// A tensor's memory. Strides are in elements, and those of inputs may be any that torch has;
/// outputs are contiguous.
struct TensorView {
  DType dtype;
  void* data;
  std::size_t rank;
  const std::int64_t* sizes;
  const std::int64_t* strides;

  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }

  std::int64_t count() const noexcept {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < rank; ++i) product *= sizes[i];
    return product;
  }
};

template <class Int>
using Sizes = std::vector<Int>;

/// A size that ONNX Runtime may not know while it loads a model. Of unknown ones no comparison is
/// true, and arithmetic gives unknown ones.
struct Dim {
  std::int64_t value = -1;     // or -1
  const char* name = nullptr;  // of an unknown one that is passed on as it is

  Dim() = default;
  Dim(std::int64_t size) : value(size) {}  // NOLINT: a number is a size
  bool known() const noexcept { return value >= 0; }
};

#define MYOPS_DIM_OPERATOR(op)                                       \
  inline Dim operator op(const Dim& a, const Dim& b) {               \
    return a.known() && b.known() ? Dim(a.value op b.value) : Dim(); \
  }
MYOPS_DIM_OPERATOR(+)
MYOPS_DIM_OPERATOR(-)
MYOPS_DIM_OPERATOR(*)
#undef MYOPS_DIM_OPERATOR
inline Dim operator/(const Dim& a, const Dim& b) {
  return a.known() && b.known() && b.value != 0 ? Dim(a.value / b.value) : Dim();
}

#define MYOPS_DIM_COMPARISON(op)                         \
  inline bool operator op(const Dim& a, const Dim& b) {  \
    return a.known() && b.known() && a.value op b.value; \
  }
MYOPS_DIM_COMPARISON(<)
MYOPS_DIM_COMPARISON(<=)
MYOPS_DIM_COMPARISON(>)
MYOPS_DIM_COMPARISON(>=)
MYOPS_DIM_COMPARISON(==)
MYOPS_DIM_COMPARISON(!=)
#undef MYOPS_DIM_COMPARISON

using CustomFn = Status (*)(const TensorView* in, const TensorView* out, const double* attributes);

/// The functions of an operator. In a library of such operators ops() lists these and no others.
CustomFn custom_forward(const OpInfo& op) noexcept;
CustomFn custom_backward(const OpInfo& op) noexcept;

}  // namespace myops
