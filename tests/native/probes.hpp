// SPDX-License-Identifier: Apache-2.0
// The math probes this machine can run.
#pragma once

#include <string>

#include "math_probe.hpp"
#include "myops/kernels.hpp"

namespace myops::tests {

/// Calls `visit(isa, probe)`.
template <class Visit>
void for_each_probe(Visit visit) {
  const IsaList list = cpu_isas();
  for (std::size_t i = 0; i < list.count; ++i) {
    const std::string isa = list.name[i];
#define MYOPS_VISIT(name) \
  if (isa == #name) visit(isa, *myops_math_probe_##name());
    MYOPS_TEST_ISAS(MYOPS_VISIT)
#undef MYOPS_VISIT
  }
}

}  // namespace myops::tests
