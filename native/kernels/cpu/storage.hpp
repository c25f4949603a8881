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

// What compilers make of the plain loops shuffles 16-bit elements about.
MYOPS_FN void load_block(const BFloat16* from, float* to, int count) {
  int i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_si512(to + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
#elif defined(__AVX2__)
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
#endif
#pragma GCC ivdep
  for (; i < count; ++i) to[i] = to_float(from[i]);
}

MYOPS_FN void store_block(const float* from, BFloat16* to, int count) {
  int i = 0;
#if defined(__AVX512F__)
  // As to_bfloat16, with the 16 result bits in the upper half until the end.
  for (; i + 16 <= count; i += 16) {
    const __m512i bits = _mm512_loadu_si512(from + i);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512 value = _mm512_castsi512_ps(bits);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16)));
  }
#elif defined(__AVX2__)
  for (; i + 8 <= count; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256 value = _mm256_castsi256_ps(bits);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i result = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(result, result), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_castsi256_si128(packed));
  }
#endif
#pragma GCC ivdep
  for (; i < count; ++i) to[i] = to_bfloat16(from[i]);
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
