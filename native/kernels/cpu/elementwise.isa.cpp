// SPDX-License-Identifier: Apache-2.0
// The elementwise driver: every op of the list, every pass, every storage type. Compiled once per
// ISA (cmake/MyopsIsa.cmake) with MYOPS_ISA_NAME set to the ISA's name.
#include "cpu/kernel_table.hpp"
#include "cpu/storage.hpp"
#include "ops/op_table.hpp"

// Everything but the table's accessor has internal linkage.
namespace myops {
namespace {

// The range check is made once per block. 256 elements keep it cheap and the blocks in L1.
constexpr int block_size = 256;

template <Pass pass>
constexpr int pass_inputs = static_cast<int>(pass) + 1;

template <Pass pass, Range range, class Op, class T>
MYOPS_FN T apply(const Op& op, const T* const* in, int i) {
  if constexpr (pass == Pass::forward) {
    return op.template forward<range>(in[0][i]);
  } else if constexpr (pass == Pass::backward) {
    return op.template backward<range>(in[0][i], in[1][i]);
  } else {
    return op.template double_backward<range>(in[0][i], in[1][i], in[2][i]);
  }
}

// `op` comes by value: behind a reference the compiler would have to assume that storing to `out`
// changes it.
template <Pass pass, Range range, class Op, class T>
MYOPS_FN void loop(const Op op, const T* const* in, T* out, int count) {
  constexpr int n = pass_inputs<pass>;
  const T* const first = in[0];
  const T* const second = in[n > 1 ? 1 : 0];
  const T* const third = in[n > 2 ? 2 : 0];
#pragma GCC ivdep
  for (int i = 0; i < count; ++i) {
    const T* const pointers[3] = {first, second, third};
    out[i] = apply<pass, range>(op, pointers, i);
  }
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

template <Pass pass, class Op, class T>
MYOPS_FN void compute_block(const Op& op, const T* const* in, T* out, int count) {
  // x is the last input of every pass.
  if (all_common(op, in[pass_inputs<pass> - 1], count)) {
    loop<pass, Range::common>(op, in, out, count);
  } else {
    loop<pass, Range::full>(op, in, out, count);
  }
}

template <template <class> class Op, Pass pass, class Storage>
void run(const void* const* inputs, void* const* outputs, std::int64_t count,
         const double* attributes) {
  using T = typename ComputeType<Storage>::type;
  constexpr int n = pass_inputs<pass>;
  const Op<T> op(attributes);
  Storage* const out = static_cast<Storage*>(outputs[0]);
  for (std::int64_t start = 0; start < count; start += block_size) {
    const std::int64_t left = count - start;
    const int size = left < block_size ? static_cast<int>(left) : block_size;
    const T* in[n];
    if constexpr (sizeof(Storage) == sizeof(T)) {
      for (int k = 0; k < n; ++k) in[k] = static_cast<const T*>(inputs[k]) + start;
      compute_block<pass>(op, in, out + start, size);
    } else {
      alignas(64) T buffer[n][block_size];
      for (int k = 0; k < n; ++k) {
        load_block(static_cast<const Storage*>(inputs[k]) + start, buffer[k], size);
        in[k] = buffer[k];
      }
      compute_block<pass>(op, in, buffer[0], size);
      store_block(buffer[0], out + start, size);
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
