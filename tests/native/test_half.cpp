// SPDX-License-Identifier: Apache-2.0
// Conversions between f32 and the halves, portable (math/half.hpp) and by blocks, where the ISA's
// own instructions may do them (cpu/storage.hpp): the same bits, always.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "formats.hpp"
#include "probes.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace myops::tests {
namespace {

/// Flush-to-zero and denormals-are-zero while in scope, as hosts may set them.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
};

std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float float_of(std::uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

bool is_nan_bits(const Format& format, std::uint64_t bits) {
  return (bits & (format.sign_bit() - 1)) > format.infinity();
}

const HalfProbe& half_probe(const MathProbe& probe, DType dtype) {
  return dtype == DType::f16 ? probe.f16 : probe.bf16;
}

/// The float a half stands for; NaN keeps sign and payload and is quiet. bf16 is the upper half of
/// a float, so nothing is made quiet on the way up.
std::uint32_t widened(DType dtype, std::uint16_t half) {
  const Format& format = format_of(dtype);
  if (!is_nan_bits(format, half)) return bits_of(static_cast<float>(decode(format, half)));
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t payload = (half & (0xffffu >> (16 - format.mantissa_bits)))
                                << (23 - format.mantissa_bits);
  return sign | 0x7f800000u | payload | (dtype == DType::f16 ? 0x400000u : 0u);
}

std::uint16_t narrowed(DType dtype, std::uint32_t bits) {
  const Format& format = format_of(dtype);
  if (!is_nan_bits(format_of(DType::f32), bits)) {
    return static_cast<std::uint16_t>(round_to(format, float_of(bits)));
  }
  const std::uint32_t payload = (bits & 0x7fffffu) >> (23 - format.mantissa_bits);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | format.quiet_nan() | payload);
}

/// Floats on which rounding may go wrong, and many others.
std::vector<float> floats(DType dtype) {
  const Format& format = format_of(dtype);
  std::vector<float> values;
  for (std::uint64_t half = 0; half < format.infinity(); ++half) {
    // The tie between two neighbours (at the top: with the first number out of range), and next to
    // it on either side.
    const long double next = half + 1 < format.infinity()
                                 ? decode(format, half + 1)
                                 : std::ldexp(1.0L, format.max_exponent + 1);
    const std::uint32_t tie = bits_of(static_cast<float>((decode(format, half) + next) / 2));
    for (const std::uint32_t near : {tie - 1, tie, tie + 1}) {
      values.push_back(float_of(near));
      values.push_back(float_of(near | 0x80000000u));
    }
  }
  for (std::uint64_t pattern = 0; pattern < (std::uint64_t(1) << 32); pattern += 4093) {
    values.push_back(float_of(static_cast<std::uint32_t>(pattern)));
  }
  for (std::uint32_t nan = 0x7f800001u; nan < 0x80000000u; nan += 65537) {
    values.push_back(float_of(nan));
    values.push_back(float_of(nan | 0x80000000u));
  }
  return values;
}

std::size_t wrong(const std::vector<std::uint32_t>& expected, const std::vector<float>& actual) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) count += bits_of(actual[i]) != expected[i];
  return count;
}

std::size_t wrong(const std::vector<std::uint16_t>& expected,
                  const std::vector<std::uint16_t>& actual) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) count += actual[i] != expected[i];
  return count;
}

constexpr DType halves[] = {DType::f16, DType::bf16};

}  // namespace

TEST_CASE("widening a half is exact for every pattern, and narrowing brings it back") {
  std::vector<std::uint16_t> patterns;
  for (std::uint32_t i = 0; i < 65536; ++i) patterns.push_back(static_cast<std::uint16_t>(i));
  const int count = 65536;
  for (const DType dtype : halves) {
    std::vector<std::uint32_t> expected;
    std::vector<std::uint16_t> back;
    for (const std::uint16_t half : patterns) {
      expected.push_back(widened(dtype, half));
      const bool nan = is_nan_bits(format_of(dtype), half);
      back.push_back(static_cast<std::uint16_t>(nan ? half | format_of(dtype).quiet_nan() : half));
    }
    for_each_probe([&](const std::string& isa, const MathProbe& probe) {
      CAPTURE(isa);
      CAPTURE(std::string(dtype_name(dtype)));
      const HalfProbe& half = half_probe(probe, dtype);
      std::vector<float> scalar(patterns.size());
      std::vector<float> block(patterns.size());
      std::vector<std::uint16_t> round_trip(patterns.size());
      const auto check = [&] {
        half.widen_scalar(patterns.data(), scalar.data(), count);
        half.widen_block(patterns.data(), block.data(), count);
        half.narrow_block(block.data(), round_trip.data(), count);
      };
      check();
      CHECK(wrong(expected, scalar) == 0);
      CHECK(wrong(expected, block) == 0);
      CHECK(wrong(back, round_trip) == 0);
      {
        const FlushDenormals flush;
        check();
      }
      CHECK(wrong(expected, scalar) == 0);
      CHECK(wrong(expected, block) == 0);
      CHECK(wrong(back, round_trip) == 0);
    });
  }
}

TEST_CASE("narrowing rounds to nearest even: ties, denormals, overflow, NaN") {
  for (const DType dtype : halves) {
    const std::vector<float> from = floats(dtype);
    const int count = static_cast<int>(from.size());
    std::vector<std::uint16_t> expected;
    for (const float x : from) expected.push_back(narrowed(dtype, bits_of(x)));
    for_each_probe([&](const std::string& isa, const MathProbe& probe) {
      CAPTURE(isa);
      CAPTURE(std::string(dtype_name(dtype)));
      const HalfProbe& half = half_probe(probe, dtype);
      std::vector<std::uint16_t> scalar(from.size());
      std::vector<std::uint16_t> block(from.size());
      half.narrow_scalar(from.data(), scalar.data(), count);
      half.narrow_block(from.data(), block.data(), count);
      CHECK(wrong(expected, scalar) == 0);
      CHECK(wrong(expected, block) == 0);
      {
        const FlushDenormals flush;
        half.narrow_scalar(from.data(), scalar.data(), count);
        half.narrow_block(from.data(), block.data(), count);
      }
      CHECK(wrong(expected, scalar) == 0);
      CHECK(wrong(expected, block) == 0);
    });
  }
}

TEST_CASE("block conversions leave the rest of the memory alone") {
  constexpr std::uint16_t sentinel = 0xa5a5;
  for (const DType dtype : halves) {
    for_each_probe([&](const std::string& isa, const MathProbe& probe) {
      const HalfProbe& half = half_probe(probe, dtype);
      for (int count = 0; count <= 50; ++count) {
        const auto size = static_cast<std::size_t>(count);
        const std::vector<std::uint16_t> from(size, 0x3c00);
        std::vector<float> wide(size + 8, -7.0f);
        half.widen_block(from.data(), wide.data(), count);
        std::vector<std::uint16_t> narrow(size + 8, sentinel);
        half.narrow_block(wide.data(), narrow.data(), count);
        bool right = true;
        for (std::size_t i = 0; i < narrow.size(); ++i) {
          right = right && (i < size ? narrow[i] == 0x3c00 : narrow[i] == sentinel);
          right = right && (i < size || wide[i] == -7.0f);
        }
        CHECK_MESSAGE(right, isa, ' ', std::string(dtype_name(dtype)), " count ", count);
      }
    });
  }
}

}  // namespace myops::tests
