// SPDX-License-Identifier: Apache-2.0
// The CPU kernels behind every host. Kernels are pure functions over flat memory: no state, no
// threads, no allocation, no exception. The host splits the range and owns the threads.
#pragma once

#include <cstdint>

#include "myops/op_info.hpp"
#include "myops/status.hpp"

namespace myops {

/// Where the outputs should end up. `memory` writes past the caches: faster for outputs that do not
/// fit a cache anyway, slower when a consumer reads smaller ones at once. Not for an output that is
/// the same memory as an input.
enum class Placement : std::uint8_t { cache, memory };

/// `memory` for outputs of 32 MB in all and more that alias no input, else `cache`. The environment
/// variable MYOPS_STREAM_BYTES moves the threshold.
Placement placement_for(std::int64_t output_bytes, bool aliases_input) noexcept;

/// Computes `count` elements. `inputs` and `outputs` point to arrays of element pointers in the
/// order documented on `Pass`; `attributes` holds OpInfo::attribute_count values. Pointers need
/// only the alignment of one element. An output may be the same memory as an input, or disjoint
/// from it, but must not overlap it partially. `count` may be 0.
using KernelFn = void (*)(const void* const* inputs, void* const* outputs, std::int64_t count,
                          const double* attributes, Placement placement);

/// The kernel for this machine, or for the ISA named by the environment variable MYOPS_ISA.
/// Never null for an op out of ops(). Check isa_status() once before the first call.
KernelFn cpu_kernel(const OpInfo& op, Pass pass, DType dtype) noexcept;

/// The kernel of one named ISA ("baseline", "v3", "v4"), or null when this machine or this build
/// does not have it. For tests and benchmarks.
KernelFn cpu_kernel_for_isa(const char* isa, const OpInfo& op, Pass pass, DType dtype) noexcept;

/// The ISA in use, one of cpu_isas().
const char* cpu_isa() noexcept;

/// An error when MYOPS_ISA names an ISA this machine or build does not have. The best ISA of the
/// machine is then in use.
Status isa_status() noexcept;

/// The ISAs this build holds and this machine can run, slowest first.
struct IsaList {
  const char* name[4];
  std::size_t count;
};
IsaList cpu_isas() noexcept;

/// Whether CUDA kernels are in this build; the error says what to do where they are not.
Status cuda_status() noexcept;

/// An error unless every attribute is finite and in its range: the formulas have no useful value
/// elsewhere.
Status check_attributes(const OpInfo& op, const double* attributes) noexcept;

/// How a host splits `count` elements: `tasks` ranges of `grain` elements, the last one shorter.
struct TaskPlan {
  std::int64_t tasks;
  std::int64_t grain;
};

/// Below 32,768 elements one task: starting the host's pool costs more than the work. Otherwise
/// tasks of at least 16,384 elements, at most `max_tasks` of them.
TaskPlan plan_tasks(std::int64_t count, std::int64_t max_tasks) noexcept;

}  // namespace myops
