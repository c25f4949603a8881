// SPDX-License-Identifier: Apache-2.0
// The elementwise driver: every op of the list, every pass, every storage type. Compiled once per
// ISA (cmake/MyopsIsa.cmake) with MYOPS_ISA_NAME set to the ISA's name.
#include <type_traits>
#include <utility>

#include "cpu/kernel_table.hpp"
#include "cpu/storage.hpp"
#include "cpu/streaming.hpp"
#include "ops/op_table.hpp"
#include "ops/passes.hpp"

// Everything but the table's accessor has internal linkage.
namespace myops {
namespace {

// The range check is made once per block. 256 elements keep it cheap and the blocks in L1.
constexpr int block_size = 256;

template <class Op, class = void>
constexpr bool has_common_range = false;
template <class Op>
constexpr bool has_common_range<Op, std::void_t<decltype(&Op::range_limit)>> = true;

// `op` comes by value: behind a reference the compiler would have to assume that storing to `out`
// changes it.
template <Pass pass, Range range, class Op, class T, int n, int m, std::size_t... I>
MYOPS_FN void loop(const Op op, const T* const (&in)[n], T* const (&out)[m], int count,
                   std::index_sequence<I...>) {
  const T* const from[] = {in[I]...};
#pragma GCC ivdep
  for (int i = 0; i < count; ++i) store(apply<pass, range>(op, from[I][i]...), out, i);
}

template <class Op, class T>
MYOPS_FN bool all_common(const Op op, const T* x, int count) {
  typename Op::UInt highest = 0;
  for (int i = 0; i < count; ++i) {
    const typename Op::UInt key = op.range_key(x[i]);
    highest = key > highest ? key : highest;
  }
  return highest <= op.range_limit();
}

template <Pass pass, bool brief, class Op, class T, int n, int m>
MYOPS_FN void compute_block(const Op& op, const T* const (&in)[n], T* const (&out)[m], int count) {
  constexpr std::make_index_sequence<n> all{};
  if constexpr (has_common_range<Op>) {
    // The operator's inputs come last in every pass; the range of the first of them decides.
    if (!all_common(op, in[n - input_count<Op>], count)) {
      loop<pass, brief ? Range::brief_full : Range::full>(op, in, out, count, all);
      return;
    }
  }
  loop<pass, brief ? Range::brief_common : Range::common>(op, in, out, count, all);
}

/// `size` elements, at most block_size of them, between storage pointers. Not inlined: the loops
/// are the bulk of the library and need to be there once.
template <Pass pass, class Op, class Storage, int n, int m>
__attribute__((noinline)) void storage_block(const Op& op, const Storage* const (&inputs)[n],
                                             Storage* const (&outputs)[m], int size) {
  using T = typename ComputeType<Storage>::type;
  if constexpr (sizeof(Storage) == sizeof(T)) {
    compute_block<pass, false>(op, inputs, outputs, size);
  } else {
    alignas(64) T buffer[n][block_size];
    const T* in[n];
    T* out[m];
    for (int k = 0; k < n; ++k) {
      load_block(inputs[k], buffer[k], size);
      in[k] = buffer[k];
    }
    for (int k = 0; k < m; ++k) out[k] = buffer[k];
    compute_block<pass, is_brief_pass<pass, Storage>>(op, in, out, size);
    for (int k = 0; k < m; ++k) store_block(out[k], outputs[k], size);
  }
}

/// Elements `start` to `end` through the caches.
template <Pass pass, class Op, class Storage, int n, int m>
MYOPS_FN void cached_range(const Op& op, const Storage* const (&inputs)[n],
                           Storage* const (&outputs)[m], std::int64_t start, std::int64_t end) {
  for (; start < end; start += block_size) {
    const std::int64_t left = end - start;
    const Storage* in[n];
    Storage* out[m];
    for (int k = 0; k < n; ++k) in[k] = inputs[k] + start;
    for (int k = 0; k < m; ++k) out[k] = outputs[k] + start;
    storage_block<pass>(op, in, out, left < block_size ? static_cast<int>(left) : block_size);
  }
}

/// Elements `start` to `end` past the caches, as far as whole groups of pages go; returns where it
/// stopped. Outputs at `start` must lie on a cache line.
///
/// Four pages are walked side by side in tiles of four lines: the hardware prefetcher follows one
/// stream per page and stops at its end, so four streams and an explicit prefetch of the next group
/// keep memory busy across page boundaries.
template <Pass pass, class Op, class Storage, int n, int m>
MYOPS_FN std::int64_t streamed_range(const Op& op, const Storage* const (&inputs)[n],
                                     Storage* const (&outputs)[m], std::int64_t start,
                                     std::int64_t end) {
  constexpr std::int64_t page = 4096 / sizeof(Storage);
  constexpr std::int64_t tile = 256 / sizeof(Storage);
  constexpr int pages = 4;
  for (; start + pages * page <= end; start += pages * page) {
    for (std::int64_t offset = 0; offset < page; offset += tile) {
      for (int p = 0; p < pages; ++p) {
        const std::int64_t here = start + p * page + offset;
        alignas(64) Storage buffer[m][tile];
        const Storage* in[n];
        Storage* out[m];
        for (int k = 0; k < n; ++k) {
          in[k] = inputs[k] + here;
          prefetch_tile(in[k] + pages * page);
        }
        for (int k = 0; k < m; ++k) out[k] = buffer[k];
        storage_block<pass>(op, in, out, static_cast<int>(tile));
        for (int k = 0; k < m; ++k) stream_tile(buffer[k], outputs[k] + here);
      }
    }
  }
  stream_fence();
  return start;
}

template <template <class> class Op, Pass pass, class Storage>
void run(const void* const* inputs, void* const* outputs, std::int64_t count,
         const double* attributes, Placement placement) {
  using T = typename ComputeType<Storage>::type;
  constexpr int n = pass_inputs<Op<T>, pass>;
  constexpr int m = pass_outputs<Op<T>, pass>;
  const Op<T> op(attributes);
  const Storage* in[n];
  Storage* out[m];
  for (int k = 0; k < n; ++k) in[k] = static_cast<const Storage*>(inputs[k]);
  for (int k = 0; k < m; ++k) out[k] = static_cast<Storage*>(outputs[k]);
  std::int64_t start = 0;
  if (placement == Placement::memory) {
    const std::int64_t head = elements_to_line(out[0]);
    bool aligned = head <= count;
    for (int k = 1; k < m; ++k) aligned = aligned && elements_to_line(out[k]) == head;
    if (aligned) {
      cached_range<pass>(op, in, out, 0, head);
      start = streamed_range<pass>(op, in, out, head, count);
    }
  }
  cached_range<pass>(op, in, out, start, count);
}

#define MYOPS_PASS(Name, pass)                                             \
  {run<Name, pass, float>, run<Name, pass, double>, run<Name, pass, Half>, \
   run<Name, pass, BFloat16>}
#define MYOPS_ROW(Name, torch_name)                                   \
  {MYOPS_PASS(Name, Pass::forward), MYOPS_PASS(Name, Pass::backward), \
   MYOPS_PASS(Name, Pass::double_backward)},

constexpr KernelTable table = {{MYOPS_ALL_OPS(MYOPS_ROW)}};

}  // namespace

#define MYOPS_CONCAT_(a, b) a##b
#define MYOPS_CONCAT(a, b) MYOPS_CONCAT_(a, b)

extern "C" const KernelTable* MYOPS_CONCAT(myops_kernels_, MYOPS_ISA_NAME)() noexcept {
  return &table;
}

}  // namespace myops
