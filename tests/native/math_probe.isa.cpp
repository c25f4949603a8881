// SPDX-License-Identifier: Apache-2.0
// Compiled once per ISA, with the flags of the kernels.
#include "math_probe.hpp"

#include <type_traits>

#include "cpu/storage.hpp"
#include "math/fmath.hpp"

namespace myops::tests {
namespace {

template <class T>
void coefficient(T scale, T* hi, T* lo) {
  const TwoFloat<T> c = negative_log2_e_times(scale);
  *hi = c.hi;
  *lo = c.lo;
}

template <class T>
void split(const T* x, T hi, T lo, T* mantissa, T* biased, T* power, int count) {
  for (int i = 0; i < count; ++i) {
    const SplitExp<T> parts = split_exp2(x[i], TwoFloat<T>{hi, lo});
    mantissa[i] = parts.mantissa;
    biased[i] = parts.biased;
    power[i] = exp2_of(parts.biased);
  }
}

template <class T>
T minus(int k) {
  return exp2_minus<T>(static_cast<typename FloatTraits<T>::UInt>(k));
}

template <class Storage>
const Storage* stored(const std::uint16_t* bits) {
  static_assert(sizeof(Storage) == sizeof *bits && std::is_standard_layout_v<Storage>);
  return reinterpret_cast<const Storage*>(bits);
}

template <class Storage>
void widen_scalar(const std::uint16_t* from, float* to, int count) {
  for (int i = 0; i < count; ++i) to[i] = to_float(Storage{from[i]});
}

template <class Storage>
void widen_block(const std::uint16_t* from, float* to, int count) {
  load_block(stored<Storage>(from), to, count);
}

template <class Storage>
void narrow_scalar(const float* from, std::uint16_t* to, int count) {
  for (int i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Storage, Half>) {
      to[i] = to_half(from[i]).bits;
    } else {
      to[i] = to_bfloat16(from[i]).bits;
    }
  }
}

template <class Storage>
void narrow_block(const float* from, std::uint16_t* to, int count) {
  store_block(from, const_cast<Storage*>(stored<Storage>(to)), count);
}

template <class T>
constexpr Exp2Probe<T> exp2_probe = {coefficient<T>, split<T>, minus<T>};

template <class Storage>
constexpr HalfProbe half_probe = {widen_scalar<Storage>, widen_block<Storage>,
                                  narrow_scalar<Storage>, narrow_block<Storage>};

constexpr MathProbe probe = {exp2_probe<float>, exp2_probe<double>, half_probe<Half>,
                             half_probe<BFloat16>};

}  // namespace

#define MYOPS_CONCAT_(a, b) a##b
#define MYOPS_CONCAT(a, b) MYOPS_CONCAT_(a, b)

extern "C" const MathProbe* MYOPS_CONCAT(myops_math_probe_, MYOPS_ISA_NAME)() noexcept {
  return &probe;
}

}  // namespace myops::tests
