// SPDX-License-Identifier: Apache-2.0
// The elementwise driver: every op of the list, every pass, every storage type. Compiled once per
// ISA (cmake/MyopsIsa.cmake) with MYOPS_ISA_NAME set to the ISA's name.
#include <type_traits>
#include <utility>

#include "cpu/kernel_table.hpp"
#include "cpu/storage.hpp"
#include "ops/op_table.hpp"

// Everything but the table's accessor has internal linkage.
namespace myops {
namespace {

// The range check is made once per block. 256 elements keep it cheap and the blocks in L1.
constexpr int block_size = 256;

/// How many arrays a pass of an operator with `inputs` inputs reads and writes.
template <class Op>
constexpr int input_count = static_cast<int>(Op::inputs.size());
template <class Op, Pass pass>
constexpr int pass_inputs = pass == Pass::forward    ? input_count<Op>
                            : pass == Pass::backward ? input_count<Op> + 1
                                                     : 2 * input_count<Op> + 1;
template <class Op, Pass pass>
constexpr int pass_outputs = pass == Pass::forward ? 1 : input_count<Op>;

template <class Op, class = void>
constexpr bool has_common_range = false;
template <class Op>
constexpr bool has_common_range<Op, std::void_t<decltype(&Op::range_limit)>> = true;

template <Pass pass, Range range, class Op, class... Values>
MYOPS_FN auto apply(const Op& op, Values... values) {
  if constexpr (pass == Pass::forward) {
    return op.template forward<range>(values...);
  } else if constexpr (pass == Pass::backward) {
    return op.template backward<range>(values...);
  } else {
    return op.template double_backward<range>(values...);
  }
}

template <class T>
MYOPS_FN void store(T value, T* const (&out)[1], int i) {
  out[0][i] = value;
}

template <class T>
MYOPS_FN void store(Pair<T> value, T* const (&out)[2], int i) {
  out[0][i] = value.first;
  out[1][i] = value.second;
}

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

template <Pass pass, class Op, class T, int n, int m>
MYOPS_FN void compute_block(const Op& op, const T* const (&in)[n], T* const (&out)[m], int count) {
  constexpr std::make_index_sequence<n> all{};
  if constexpr (has_common_range<Op>) {
    // The operator's inputs come last in every pass; the range of the first of them decides.
    if (!all_common(op, in[n - input_count<Op>], count)) {
      loop<pass, Range::full>(op, in, out, count, all);
      return;
    }
  }
  loop<pass, Range::common>(op, in, out, count, all);
}

template <template <class> class Op, Pass pass, class Storage>
void run(const void* const* inputs, void* const* outputs, std::int64_t count,
         const double* attributes) {
  using T = typename ComputeType<Storage>::type;
  constexpr int n = pass_inputs<Op<T>, pass>;
  constexpr int m = pass_outputs<Op<T>, pass>;
  const Op<T> op(attributes);
  for (std::int64_t start = 0; start < count; start += block_size) {
    const std::int64_t left = count - start;
    const int size = left < block_size ? static_cast<int>(left) : block_size;
    const T* in[n];
    T* out[m];
    if constexpr (sizeof(Storage) == sizeof(T)) {
      for (int k = 0; k < n; ++k) in[k] = static_cast<const T*>(inputs[k]) + start;
      for (int k = 0; k < m; ++k) out[k] = static_cast<T*>(outputs[k]) + start;
      compute_block<pass>(op, in, out, size);
    } else {
      alignas(64) T buffer[n][block_size];
      for (int k = 0; k < n; ++k) {
        load_block(static_cast<const Storage*>(inputs[k]) + start, buffer[k], size);
        in[k] = buffer[k];
      }
      for (int k = 0; k < m; ++k) out[k] = buffer[k];
      compute_block<pass>(op, in, out, size);
      for (int k = 0; k < m; ++k) {
        store_block(out[k], static_cast<Storage*>(outputs[k]) + start, size);
      }
    }
  }
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
