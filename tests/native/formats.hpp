// SPDX-License-Identifier: Apache-2.0
// The four storage formats as the tests understand them: by definition (sign, exponent, fraction),
// so that nothing here shares code with the conversions under test.
#pragma once

#include <cstdint>
#include <vector>

#include "myops/op_info.hpp"

namespace myops::tests {

struct Format {
  int mantissa_bits;
  int min_exponent;  // of the smallest normal number
  int max_exponent;  // of the largest number

  int width() const;
  std::uint64_t infinity() const;  // bits
  std::uint64_t quiet_nan() const;
  std::uint64_t sign_bit() const;
  long double largest() const;
  long double smallest_normal() const;
  long double smallest_denormal() const;
};

const Format& format_of(DType dtype);

/// The number a bit pattern stands for, exactly.
long double decode(const Format& format, std::uint64_t bits);

/// The pattern nearest to `value`, ties to even; the quiet NaN for NaN.
std::uint64_t round_to(const Format& format, long double value);

/// Distance of neighbouring numbers at `value`.
long double ulp(const Format& format, long double value);

/// |actual - expected| in ulps of expected, after taking off `slack`. An infinite `actual` counts
/// as the first power of two out of range, so that overflow is judged like any rounding, and is
/// right beyond. NaN for NaN is 0; NaN for a number, or a number for NaN or infinity, is infinite.
double error_in_ulps(const Format& format, long double actual, long double expected,
                     long double slack);

/// `count` elements of one dtype in memory of exactly that size, so that AddressSanitizer sees a
/// read or write one past the end.
class Buffer {
 public:
  Buffer(DType dtype, std::size_t count)
      : dtype_(dtype), bytes_(count * element_size(dtype)), count_(count) {}

  DType dtype() const { return dtype_; }
  std::size_t count() const { return count_; }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  void* at(std::size_t index) { return bytes_.data() + index * element_size(dtype_); }
  const void* at(std::size_t index) const { return bytes_.data() + index * element_size(dtype_); }

  std::uint64_t bits(std::size_t index) const;
  void set_bits(std::size_t index, std::uint64_t bits);
  long double value(std::size_t index) const;
  void set(std::size_t index, long double value);

  bool operator==(const Buffer& other) const { return bytes_ == other.bytes_; }

 private:
  DType dtype_;
  std::vector<unsigned char> bytes_;
  std::size_t count_;
};

/// Equal bits, or NaN in both: which operand's payload a NaN result carries is the compiler's
/// choice.
bool same_element(const Buffer& a, std::size_t i, const Buffer& b, std::size_t j);

}  // namespace myops::tests
