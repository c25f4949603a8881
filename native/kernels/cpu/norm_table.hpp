// SPDX-License-Identifier: Apache-2.0
// What one ISA's object file of the norms offers the dispatcher.
#pragma once

#include "myops/norm.hpp"
#include "ops/norm.hpp"

namespace myops {

struct NormTable {
  NormKernels kernels[norm_count][dtype_count];
};

// Each norm.isa.cpp object defines exactly one of these and exports nothing else.
extern "C" {
const NormTable* myops_norms_baseline() noexcept;
const NormTable* myops_norms_v3() noexcept;
const NormTable* myops_norms_v4() noexcept;
}

}  // namespace myops
