// SPDX-License-Identifier: Apache-2.0
// The elementwise driver on CUDA, for every op of the list and every storage type; a source file
// per pass makes the kernels. Compiled with --fmad=false: fused operations are those written in the
// source, so that results have the CPU's bits.
#pragma once

#include <utility>

#include "cuda/launch.cuh"
#include "myops/cuda.hpp"
#include "myops/launch_plan.hpp"
#include "ops/op_table.hpp"
#include "ops/passes.hpp"

namespace myops {
namespace {

// Small enough that registers never limit a multiprocessor to one block (ptxas -v); memory is busy
// long before more threads would help.
constexpr int threads_per_block = 256;
// Several waves, so that blocks which finish early have successors.
constexpr int blocks_per_multiprocessor = 16;

template <class Storage, int n, int m>
struct Pointers {
  const Storage* in[n];
  Storage* out[m];
};

template <Pass pass, Range range, class Op, class T, int n, int m, std::size_t... I>
__device__ __forceinline__ void compute(const Op& op, const T (&in)[n], T (&out)[m],
                                        std::index_sequence<I...>) {
  if constexpr (m == 1) {
    out[0] = apply<pass, range>(op, in[I]...);
  } else {
    const auto result = apply<pass, range>(op, in[I]...);
    out[0] = result.first;
    out[1] = result.second;
  }
}

template <template <class> class Op, Pass pass, class Storage, int width, int n, int m>
__global__ void __launch_bounds__(threads_per_block)
    elementwise(const Op<typename ComputeType<Storage>::type> op,
                const Pointers<Storage, n, m> pointers, const LaunchPlan plan) {
  using T = typename ComputeType<Storage>::type;
  constexpr Range range = is_brief_pass<pass, Storage> ? Range::brief_full : Range::full;
  constexpr std::make_index_sequence<n> all{};
  const auto scalar = [&](std::int64_t i) {
    T in[n];
    T out[m];
    for (int k = 0; k < n; ++k) in[k] = cuda::load(pointers.in[k][i]);
    compute<pass, range>(op, in, out, all);
    for (int k = 0; k < m; ++k) cuda::store(out[k], pointers.out[k] + i);
  };
  const auto vector = [&](std::int64_t i) {
    using Pack = cuda::Vector<Storage, width>;
    Pack from[n];
    Pack to[m];
    for (int k = 0; k < n; ++k) from[k] = *reinterpret_cast<const Pack*>(pointers.in[k] + i);
#pragma unroll
    for (int e = 0; e < width; ++e) {
      T in[n];
      T out[m];
      for (int k = 0; k < n; ++k) in[k] = cuda::load(from[k].values[e]);
      compute<pass, range>(op, in, out, all);
      for (int k = 0; k < m; ++k) cuda::store(out[k], to[k].values + e);
    }
    for (int k = 0; k < m; ++k) *reinterpret_cast<Pack*>(pointers.out[k] + i) = to[k];
  };
  walk(plan, blockIdx.x, threadIdx.x, scalar, vector);
}

template <int n>
struct Layouts {
  Broadcast of[n];
};

/// The forward pass where an input after the first is broadcast: element by element.
template <template <class> class Op, class Storage, int n>
__global__ void __launch_bounds__(threads_per_block)
    broadcasting(const Op<typename ComputeType<Storage>::type> op,
                 const Pointers<Storage, n, 1> pointers,
                 const __grid_constant__ Layouts<n - 1> layouts, const LaunchPlan plan) {
  using T = typename ComputeType<Storage>::type;
  constexpr Range range = is_brief_pass<Pass::forward, Storage> ? Range::brief_full : Range::full;
  const auto each = [&](std::int64_t i) {
    T in[n];
    T out[1];
    in[0] = cuda::load(pointers.in[0][i]);
#pragma unroll
    for (int k = 1; k < n; ++k) in[k] = cuda::load(pointers.in[k][layouts.of[k - 1].offset(i)]);
    compute<Pass::forward, range>(op, in, out, std::make_index_sequence<n>{});
    cuda::store(out[0], pointers.out[0] + i);
  };
  walk(plan, blockIdx.x, threadIdx.x, each, each);
}

/// Blocks that keep the current device busy; the grid-stride loop covers the rest.
std::int64_t most_blocks() noexcept {
  int device = 0;
  int multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  return static_cast<std::int64_t>(multiprocessors > 0 ? multiprocessors : 1) *
         blocks_per_multiprocessor;
}

template <template <class> class Op, Pass pass, class Storage>
Status launch(const CudaCall& call) {
  using T = typename ComputeType<Storage>::type;
  constexpr int n = pass_inputs<Op<T>, pass>;
  constexpr int m = pass_outputs<Op<T>, pass>;
  constexpr int width = 16 / sizeof(Storage);
  if (call.count <= 0) return {};
  Pointers<Storage, n, m> pointers;
  for (int k = 0; k < n; ++k) pointers.in[k] = static_cast<const Storage*>(call.inputs[k]);
  for (int k = 0; k < m; ++k) pointers.out[k] = static_cast<Storage*>(call.outputs[k]);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const Op<T> op(call.attributes);
  if constexpr (pass == Pass::forward && op_broadcasts<Op<T>>) {
    if (call.broadcasts != nullptr) {
      Layouts<n - 1> layouts;
      for (int k = 1; k < n; ++k) layouts.of[k - 1] = call.broadcasts[k];
      const LaunchPlan plan = plan_launch(call.count, sizeof(Storage), 0, false, most_blocks());
      broadcasting<Op, Storage, n>
          <<<plan.blocks, plan.threads, 0, stream>>>(op, pointers, layouts, plan);
      return MYOPS_LAUNCH_STATUS();
    }
  }
  const auto past = [](const void* pointer) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pointer) % 16);
  };
  // Vectors need one distance from a 16-byte boundary for all arrays.
  bool vectorize = true;
  for (int k = 0; k < n; ++k)
    vectorize = vectorize && past(pointers.in[k]) == past(pointers.out[0]);
  for (int k = 1; k < m; ++k)
    vectorize = vectorize && past(pointers.out[k]) == past(pointers.out[0]);
  const LaunchPlan plan =
      plan_launch(call.count, sizeof(Storage), past(pointers.out[0]), vectorize, most_blocks());
  if (vectorize) {
    elementwise<Op, pass, Storage, width, n, m>
        <<<plan.blocks, plan.threads, 0, stream>>>(op, pointers, plan);
  } else {
    elementwise<Op, pass, Storage, 1, n, m>
        <<<plan.blocks, plan.threads, 0, stream>>>(op, pointers, plan);
  }
  return MYOPS_LAUNCH_STATUS();
}

/// A row of the table of one pass: a kernel per storage type.
#define MYOPS_CUDA_ROW(Name, pass)                                                  \
  {launch<Name, pass, float>, launch<Name, pass, double>, launch<Name, pass, Half>, \
   launch<Name, pass, BFloat16>},

}  // namespace
}  // namespace myops
