// SPDX-License-Identifier: Apache-2.0
// The op list: the families' lists, one after the other. Everything per-op is generated from it.
#pragma once

#include "ops/activation.hpp"
#include "ops/gated.hpp"
#include "ops/gelu.hpp"

#define MYOPS_ALL_OPS(X)  \
  MYOPS_ACTIVATION_OPS(X) \
  MYOPS_GELU_OPS(X)       \
  MYOPS_GATED_OPS(X)

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

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
