// SPDX-License-Identifier: Apache-2.0
// The math headers as one ISA compiles them, behind plain functions: test code built for an ISA
// could put its templates into the program in a form the machine cannot run.
#pragma once

#include <cstdint>

#include "isa_list.hpp"

namespace myops::tests {

template <class T>
struct Exp2Probe {
  /// c = -scale log2(e).
  void (*coefficient)(T scale, T* hi, T* lo);
  /// 2^(x c) = mantissa * power; biased as SplitExp has it.
  void (*split)(const T* x, T hi, T lo, T* mantissa, T* biased, T* power, int count);
  /// 2^-k
  T (*minus)(int k);
};

/// Conversions of arrays, element by element (`scalar`) or as the driver does a block.
struct HalfProbe {
  void (*widen_scalar)(const std::uint16_t* from, float* to, int count);
  void (*widen_block)(const std::uint16_t* from, float* to, int count);
  void (*narrow_scalar)(const float* from, std::uint16_t* to, int count);
  void (*narrow_block)(const float* from, std::uint16_t* to, int count);
};

struct MathProbe {
  Exp2Probe<float> f32;
  Exp2Probe<double> f64;
  HalfProbe f16;
  HalfProbe bf16;
};

extern "C" {
#define MYOPS_DECLARE(isa) const MathProbe* myops_math_probe_##isa() noexcept;
MYOPS_TEST_ISAS(MYOPS_DECLARE)
#undef MYOPS_DECLARE
}

}  // namespace myops::tests
