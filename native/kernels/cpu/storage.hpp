// SPDX-License-Identifier: Apache-2.0
// Blocks of stored elements to and from the type the functors compute in.
#pragma once

#include <cstdint>

#include "math/half.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace myops {
inline namespace MYOPS_ISA_NAME {

template <class Storage>
struct ComputeType {
  using type = Storage;
};
template <>
struct ComputeType<Half> {
  using type = float;
};
template <>
struct ComputeType<BFloat16> {
  using type = float;
};

MYOPS_FN void load_block(const BFloat16* from, float* to, int count) {
#pragma GCC ivdep
  for (int i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

MYOPS_FN void store_block(const float* from, BFloat16* to, int count) {
#pragma GCC ivdep
  for (int i = 0; i < count; ++i) to[i] = to_bfloat16(from[i]);
}

// The hardware conversions give the same bits as the integer ones, NaN payloads included.
MYOPS_FN void load_block(const Half* from, float* to, int count) {
  int i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(halves));
  }
#elif defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
#endif
#pragma GCC ivdep
  for (; i < count; ++i) to[i] = to_float(from[i]);
}

MYOPS_FN void store_block(const float* from, Half* to, int count) {
  int i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    const __m256i halves =
        _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), halves);
  }
#elif defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
#endif
#pragma GCC ivdep
  for (; i < count; ++i) to[i] = to_half(from[i]);
}

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
