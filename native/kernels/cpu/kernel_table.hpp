// SPDX-License-Identifier: Apache-2.0
// What one ISA's object file offers the dispatcher.
#pragma once

#include "myops/kernels.hpp"
#include "ops/op_table.hpp"

namespace myops {

struct KernelTable {
  KernelFn kernel[op_count][pass_count][dtype_count];
};

// Each elementwise.isa.cpp object defines exactly one of these and exports nothing else.
extern "C" {
const KernelTable* myops_kernels_baseline() noexcept;
const KernelTable* myops_kernels_v3() noexcept;
const KernelTable* myops_kernels_v4() noexcept;
}

}  // namespace myops
