// SPDX-License-Identifier: Apache-2.0
// Picks the ISA once per process.
#include <cstdlib>
#include <cstring>

#include "cpu/kernel_table.hpp"
#include "cpu/norm_table.hpp"

namespace myops {
namespace {

struct Isa {
  const char* name;
  const KernelTable* (*table)() noexcept;
  const NormTable* (*norms)() noexcept;
  bool (*runs_here)() noexcept;
};

bool always() noexcept { return true; }

#if MYOPS_X86_ISAS
// GCC 11 does not know the level names in __builtin_cpu_supports: the features are spelt out.
bool has_v3() noexcept {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt");
}

bool has_v4() noexcept {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

// Slowest first.
constexpr Isa isas[] = {
    {"baseline", myops_kernels_baseline, myops_norms_baseline, always},
#if MYOPS_X86_ISAS
    {"v3", myops_kernels_v3, myops_norms_v3, has_v3},
    {"v4", myops_kernels_v4, myops_norms_v4, has_v4},
#endif
};

const Isa* find_isa(const char* name) noexcept {
  for (const Isa& isa : isas) {
    if (std::strcmp(isa.name, name) == 0 && isa.runs_here()) return &isa;
  }
  return nullptr;
}

struct Choice {
  const Isa* isa;
  const KernelTable* table;
  const NormTable* norms;
  const char* refused;  // the value of MYOPS_ISA that could not be honoured, or null
};

Choice choose() noexcept {
  Choice choice{nullptr, nullptr, nullptr, nullptr};
  for (const Isa& isa : isas) {
    if (isa.runs_here()) choice.isa = &isa;
  }
  const char* wanted = std::getenv("MYOPS_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    const Isa* isa = find_isa(wanted);
    if (isa != nullptr) {
      choice.isa = isa;
    } else {
      choice.refused = wanted;
    }
  }
  choice.table = choice.isa->table();
  choice.norms = choice.isa->norms();
  return choice;
}

const Choice& chosen() noexcept {
  static const Choice choice = choose();
  return choice;
}

KernelFn entry(const KernelTable& table, const OpInfo& op, Pass pass, DType dtype) noexcept {
  return table.kernel[op.index][static_cast<std::size_t>(pass)][static_cast<std::size_t>(dtype)];
}

}  // namespace

KernelFn cpu_kernel(const OpInfo& op, Pass pass, DType dtype) noexcept {
  return entry(*chosen().table, op, pass, dtype);
}

KernelFn cpu_kernel_for_isa(const char* isa, const OpInfo& op, Pass pass, DType dtype) noexcept {
  const Isa* found = find_isa(isa);
  return found == nullptr ? nullptr : entry(*found->table(), op, pass, dtype);
}

NormKernels norm_kernels(const OpInfo& op, DType dtype) noexcept {
  return chosen().norms->kernels[op.index][static_cast<std::size_t>(dtype)];
}

NormKernels norm_kernels_for_isa(const char* isa, const OpInfo& op, DType dtype) noexcept {
  const Isa* found = find_isa(isa);
  if (found == nullptr) return {nullptr, nullptr};
  return found->norms()->kernels[op.index][static_cast<std::size_t>(dtype)];
}

const char* cpu_isa() noexcept { return chosen().isa->name; }

IsaList cpu_isas() noexcept {
  IsaList list{{}, 0};
  for (const Isa& isa : isas) {
    if (isa.runs_here()) list.name[list.count++] = isa.name;
  }
  return list;
}

Status isa_status() noexcept {
  if (chosen().refused == nullptr) return {};
  const IsaList list = cpu_isas();
  char names[64] = "";
  for (std::size_t i = 0; i < list.count; ++i) {
    std::strcat(names, i == 0 ? "" : ", ");
    std::strcat(names, list.name[i]);
  }
  return Status::error(
      "[myops] MYOPS_ISA should be one of %s on this machine. Received \"%s\". Set one of these "
      "or unset the variable.",
      names, chosen().refused);
}

Placement placement_for(std::int64_t output_bytes, bool aliases_input) noexcept {
  // With a consumer that reads the output at once, streaming loses at 12 MB and wins at 32 MB.
  static const std::int64_t threshold = [] {
    const char* text = std::getenv("MYOPS_STREAM_BYTES");
    char* end = nullptr;
    const long long value = text == nullptr ? 0 : std::strtoll(text, &end, 10);
    return text != nullptr && end != text && value >= 0 ? std::int64_t(value)
                                                        : std::int64_t(32) << 20;
  }();
  return output_bytes >= threshold && !aliases_input ? Placement::memory : Placement::cache;
}

TaskPlan plan_tasks(std::int64_t count, std::int64_t max_tasks) noexcept {
  constexpr std::int64_t serial_below = 32768;
  constexpr std::int64_t smallest_task = 16384;
  constexpr std::int64_t granule = 1024;  // tasks start on a cache line whatever the dtype
  if (count < serial_below || max_tasks <= 1) return {count > 0 ? 1 : 0, count};
  std::int64_t tasks = count / smallest_task;
  if (tasks > max_tasks) tasks = max_tasks;
  const std::int64_t share = count / tasks + (count % tasks != 0 ? 1 : 0);
  const std::int64_t grain = (share + granule - 1) / granule * granule;
  return {count / grain + (count % grain != 0 ? 1 : 0), grain};
}

TaskPlan plan_rows(std::int64_t rows, std::int64_t width, std::int64_t max_tasks) noexcept {
  if (width <= 0) return {rows > 0 ? 1 : 0, rows};
  const std::int64_t tasks = plan_tasks(rows * width, max_tasks < rows ? max_tasks : rows).tasks;
  if (tasks <= 1) return {tasks, rows};
  const std::int64_t grain = rows / tasks + (rows % tasks != 0 ? 1 : 0);
  return {rows / grain + (rows % grain != 0 ? 1 : 0), grain};
}

}  // namespace myops
