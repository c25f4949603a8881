// SPDX-License-Identifier: Apache-2.0
// Stores that go past the caches, and prefetch, for outputs too large to be read from a cache.
#pragma once

#include <cstdint>

#include "math/portable.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace myops {
inline namespace MYOPS_ISA_NAME {

inline constexpr int line_bytes = 64;
inline constexpr int tile_lines = 4;

/// Elements from `pointer` to the next cache line. Elements are aligned to their size.
template <class Element>
MYOPS_FN std::int64_t elements_to_line(const Element* pointer) {
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(pointer) % line_bytes;
  return static_cast<std::int64_t>((line_bytes - past) % line_bytes / sizeof(Element));
}

/// Asks for the four lines from `pointer` on. Any address is allowed.
MYOPS_FN void prefetch_tile(const void* pointer) {
  for (int i = 0; i < tile_lines; ++i) {
    __builtin_prefetch(static_cast<const char*>(pointer) + i * line_bytes);
  }
}

/// Copies four lines; both sides lie on a line.
MYOPS_FN void stream_tile(const void* from, void* to) {
#if defined(__AVX512F__)
  for (int i = 0; i < tile_lines; ++i) {
    _mm512_stream_si512(static_cast<__m512i*>(to) + i,
                        _mm512_load_si512(static_cast<const __m512i*>(from) + i));
  }
#elif defined(__AVX__)
  for (int i = 0; i < 2 * tile_lines; ++i) {
    _mm256_stream_si256(static_cast<__m256i*>(to) + i,
                        _mm256_load_si256(static_cast<const __m256i*>(from) + i));
  }
#elif defined(__SSE2__)
  for (int i = 0; i < 4 * tile_lines; ++i) {
    _mm_stream_si128(static_cast<__m128i*>(to) + i,
                     _mm_load_si128(static_cast<const __m128i*>(from) + i));
  }
#else
  __builtin_memcpy(to, from, tile_lines * line_bytes);
#endif
}

/// Makes streamed stores visible before any later store, such as the host's "task done".
MYOPS_FN void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace MYOPS_ISA_NAME
}  // namespace myops
