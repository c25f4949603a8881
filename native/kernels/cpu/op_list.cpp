// SPDX-License-Identifier: Apache-2.0
// The op list as run-time records.
#include <cmath>

#include "myops/kernels.hpp"
#include "ops/op_table.hpp"

namespace myops {
namespace {

template <template <class> class Op>
constexpr OpInfo describe(const char* name, const char* torch_name, OpIndex index) {
  return {name,
          torch_name,
          static_cast<std::size_t>(index),
          Op<float>::inputs.size(),
          Op<float>::inputs.data(),
          Op<float>::attributes.size(),
          Op<float>::attributes.data(),
          op_broadcasts<Op<float>>};
}

constexpr OpInfo infos[] = {
#define MYOPS_INFO(Name, torch_name) describe<Name>(#Name, #torch_name, OpIndex::Name),
    MYOPS_ALL_OPS(MYOPS_INFO)
#undef MYOPS_INFO
};

}  // namespace

OpList ops() noexcept { return {infos, op_count}; }

const OpInfo* find_op(std::string_view name) noexcept {
  for (const OpInfo& info : infos) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

Status check_attributes(const OpInfo& op, const double* attributes) noexcept {
  for (std::size_t i = 0; i < op.attribute_count; ++i) {
    if (!std::isfinite(attributes[i])) {
      return Status::error("[%s] %s should be finite. Received %g. Pass a finite number.",
                           op.torch_name, op.attributes[i].name, attributes[i]);
    }
  }
  return {};
}

}  // namespace myops
