// SPDX-License-Identifier: Apache-2.0
// The functions over whole tensors, as run-time records.
#include <iterator>

#include "myops/custom.hpp"
#include "myops/kernels.hpp"
#include "myops/norm.hpp"
#include MYOPS_OP_LIST

namespace myops {
namespace {

#define MYOPS_ONE(Name, torch_name) +1
constexpr std::size_t count = 0 MYOPS_CUSTOM_OPS(MYOPS_ONE);
#undef MYOPS_ONE

enum Index : std::size_t {
#define MYOPS_INDEX(Name, torch_name) index_of_##Name,
  MYOPS_CUSTOM_OPS(MYOPS_INDEX)
#undef MYOPS_INDEX
};

constexpr OpInfo infos[] = {
#define MYOPS_INFO(Name, torch_name) \
  {#Name,                            \
   #torch_name,                      \
   index_of_##Name,                  \
   Name::inputs.size(),              \
   Name::inputs.data(),              \
   Name::attributes.size(),          \
   Name::attributes.data(),          \
   Name::outputs.size(),             \
   Name::outputs.data(),             \
   false},
    MYOPS_CUSTOM_OPS(MYOPS_INFO)
#undef MYOPS_INFO
};

#define MYOPS_FORWARD(Name, torch_name) Name::forward,
constexpr CustomFn forwards[] = {MYOPS_CUSTOM_OPS(MYOPS_FORWARD)};
#undef MYOPS_FORWARD
#define MYOPS_BACKWARD(Name, torch_name) Name::backward,
constexpr CustomFn backwards[] = {MYOPS_CUSTOM_OPS(MYOPS_BACKWARD)};
#undef MYOPS_BACKWARD

}  // namespace

OpList ops() noexcept { return {infos, count}; }

OpList norm_ops() noexcept { return {nullptr, 0}; }

// Nothing here is compiled per instruction set.
Status isa_status() noexcept { return {}; }

CustomFn custom_forward(const OpInfo& op) noexcept { return forwards[op.index]; }
CustomFn custom_backward(const OpInfo& op) noexcept { return backwards[op.index]; }

}  // namespace myops
