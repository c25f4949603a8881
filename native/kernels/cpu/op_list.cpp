// SPDX-License-Identifier: Apache-2.0
// The op list as run-time records.
#include <iterator>

#include "myops/kernels.hpp"
#include "myops/norm.hpp"
#include "ops/norm.hpp"
#include "ops/op_table.hpp"

namespace myops {
namespace {

constexpr const char* elementwise_outputs[] = {"y"};

template <class Op, class Outputs>
constexpr OpInfo describe(const char* name, const char* torch_name, std::size_t index,
                          const Outputs& outputs, bool broadcasts) {
  return {name,
          torch_name,
          index,
          Op::inputs.size(),
          Op::inputs.data(),
          Op::attributes.size(),
          Op::attributes.data(),
          std::size(outputs),
          std::data(outputs),
          broadcasts};
}

constexpr OpInfo infos[] = {
#define MYOPS_INFO(Name, torch_name)                                                 \
  describe<Name<float>>(#Name, #torch_name, static_cast<std::size_t>(OpIndex::Name), \
                        elementwise_outputs, op_broadcasts<Name<float>>),
    MYOPS_ALL_OPS(MYOPS_INFO)
#undef MYOPS_INFO
};

#ifndef MYOPS_OP_LIST
constexpr OpInfo norm_infos[] = {
#define MYOPS_INFO(Name, torch_name)                                                           \
  describe<Name>(#Name, #torch_name, static_cast<std::size_t>(NormIndex::Name), Name::outputs, \
                 false),
    MYOPS_NORM_OPS(MYOPS_INFO)
#undef MYOPS_INFO
};
#define MYOPS_FITS(Name, torch_name)                             \
  static_assert(Name::attributes.size() <= most_norm_attributes, \
                #Name " has more attributes than most_norm_attributes");
MYOPS_NORM_OPS(MYOPS_FITS)
#undef MYOPS_FITS
constexpr OpList norms{norm_infos, std::size(norm_infos)};
#else
constexpr OpList norms{nullptr, 0};
#endif

}  // namespace

OpList ops() noexcept { return {infos, op_count}; }

OpList norm_ops() noexcept { return norms; }

const OpInfo* find_norm(std::string_view name) noexcept {
  for (const OpInfo& info : norms) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

const OpInfo* find_op(std::string_view name) noexcept {
  for (const OpInfo& info : infos) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

}  // namespace myops
