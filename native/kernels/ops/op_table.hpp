// SPDX-License-Identifier: Apache-2.0
// The op list: the families' lists, one after the other. Everything per-op is generated from it.
// Projects of their own define MYOPS_OP_LIST as the name of a header with their functors and list.
#pragma once

#include <type_traits>

#ifdef MYOPS_OP_LIST
#include MYOPS_OP_LIST
#else
#include "ops/activation.hpp"
#include "ops/gated.hpp"
#include "ops/gelu.hpp"
#include "ops/swish_tensor.hpp"

#define MYOPS_ALL_OPS(X)  \
  MYOPS_ACTIVATION_OPS(X) \
  MYOPS_GELU_OPS(X)       \
  MYOPS_GATED_OPS(X)      \
  MYOPS_SWISH_TENSOR_OPS(X)
#endif

// A list of functions over whole tensors is empty otherwise, and the other way round.
#ifndef MYOPS_CUSTOM_OPS
#define MYOPS_CUSTOM_OPS(X)
#endif

namespace myops {
inline namespace MYOPS_ISA_NAME {

enum class OpIndex : std::size_t {
#define MYOPS_INDEX(Name, torch_name) Name,
  MYOPS_ALL_OPS(MYOPS_INDEX)
#undef MYOPS_INDEX
};

#define MYOPS_ONE(Name, torch_name) +1
inline constexpr std::size_t op_count = 0 MYOPS_ALL_OPS(MYOPS_ONE);
#undef MYOPS_ONE

/// The functor behind an index, in one compute type.
template <OpIndex index, class T>
struct FunctorOf;
#define MYOPS_FUNCTOR(Name, torch_name) \
  template <class T>                    \
  struct FunctorOf<OpIndex::Name, T> {  \
    using type = Name<T>;               \
  };
MYOPS_ALL_OPS(MYOPS_FUNCTOR)
#undef MYOPS_FUNCTOR

/// Whether a functor says that its inputs after the first may be broadcast.
template <class Op, class = void>
inline constexpr bool op_broadcasts = false;
template <class Op>
inline constexpr bool op_broadcasts<Op, std::void_t<decltype(Op::broadcasts)>> = Op::broadcasts;

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
