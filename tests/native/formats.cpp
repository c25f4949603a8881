// SPDX-License-Identifier: Apache-2.0
#include "formats.hpp"

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

namespace myops::tests {

int Format::width() const {
  int exponent_bits = 1;
  while ((1 << (exponent_bits - 1)) - 1 < max_exponent) ++exponent_bits;
  return 1 + exponent_bits + mantissa_bits;
}

std::uint64_t Format::sign_bit() const { return std::uint64_t(1) << (width() - 1); }

std::uint64_t Format::infinity() const { return sign_bit() - (std::uint64_t(1) << mantissa_bits); }

std::uint64_t Format::quiet_nan() const {
  return infinity() | std::uint64_t(1) << (mantissa_bits - 1);
}

long double Format::largest() const {
  return std::ldexp(2.0L - std::ldexp(1.0L, -mantissa_bits), max_exponent);
}

long double Format::smallest_normal() const { return std::ldexp(1.0L, min_exponent); }

long double Format::smallest_denormal() const {
  return std::ldexp(1.0L, min_exponent - mantissa_bits);
}

const Format& format_of(DType dtype) {
  static constexpr Format formats[dtype_count] = {
      {23, -126, 127}, {52, -1022, 1023}, {10, -14, 15}, {7, -126, 127}};
  return formats[static_cast<std::size_t>(dtype)];
}

long double decode(const Format& format, std::uint64_t bits) {
  const std::uint64_t implicit_one = std::uint64_t(1) << format.mantissa_bits;
  const std::uint64_t magnitude = bits & (format.sign_bit() - 1);
  const std::uint64_t fraction = magnitude & (implicit_one - 1);
  const int field = static_cast<int>(magnitude >> format.mantissa_bits);
  long double value = 0;
  if (magnitude > format.infinity()) {
    value = std::numeric_limits<long double>::quiet_NaN();
  } else if (magnitude == format.infinity()) {
    value = std::numeric_limits<long double>::infinity();
  } else if (field == 0) {
    value =
        std::ldexp(static_cast<long double>(fraction), format.min_exponent - format.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<long double>(fraction | implicit_one),
                       format.min_exponent + field - 1 - format.mantissa_bits);
  }
  return std::copysign(value, (bits & format.sign_bit()) != 0 ? -1.0L : 1.0L);
}

long double ulp(const Format& format, long double value) {
  int exponent = format.min_exponent;
  if (value != 0 && std::isfinite(value)) exponent = std::ilogb(value);
  if (exponent < format.min_exponent) exponent = format.min_exponent;
  if (exponent > format.max_exponent) exponent = format.max_exponent;
  return std::ldexp(1.0L, exponent - format.mantissa_bits);
}

std::uint64_t round_to(const Format& format, long double value) {
  const std::uint64_t sign = std::signbit(value) ? format.sign_bit() : 0;
  if (std::isnan(value)) return format.quiet_nan() | sign;
  if (std::isinf(value)) return format.infinity() | sign;
  const long double magnitude = std::fabs(value);
  const long double step = ulp(format, magnitude);
  // The division by a power of two is exact; nearbyint breaks ties to even in the default mode.
  const long double rounded = std::nearbyint(magnitude / step) * step;
  if (rounded > format.largest()) return format.infinity() | sign;
  if (rounded < format.smallest_normal()) {
    return static_cast<std::uint64_t>(rounded / format.smallest_denormal()) | sign;
  }
  const int exponent = std::ilogb(rounded);
  const auto fraction = static_cast<std::uint64_t>(
      std::ldexp(rounded, format.mantissa_bits - exponent));  // with the implicit one
  const auto field = static_cast<std::uint64_t>(exponent - format.min_exponent);
  return ((field << format.mantissa_bits) + fraction) | sign;
}

double error_in_ulps(const Format& format, long double actual, long double expected,
                     long double slack) {
  constexpr double never = std::numeric_limits<double>::infinity();
  if (std::isnan(actual) || std::isnan(expected)) {
    return std::isnan(actual) && std::isnan(expected) ? 0 : never;
  }
  if (actual == expected) return 0;
  if (std::isinf(expected)) return never;
  if (std::isinf(actual)) {
    const long double out_of_range =
        std::copysign(std::ldexp(1.0L, format.max_exponent + 1), actual);
    if (std::fabs(expected) >= std::fabs(out_of_range) && actual * expected > 0) return 0;
    actual = out_of_range;
  }
  const long double error = std::fabs(actual - expected) - slack;
  return error > 0 ? static_cast<double>(error / ulp(format, expected)) : 0;
}

namespace {

std::vector<long double> all_values(DType dtype) {
  std::vector<long double> values;
  for (std::uint64_t bits = 0; bits < 65536; ++bits) {
    values.push_back(decode(format_of(dtype), bits));
  }
  return values;
}

}  // namespace

std::uint64_t Buffer::bits(std::size_t index) const {
  switch (element_size(dtype_)) {
    case 2: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at(index), sizeof bits);
      return bits;
    }
    case 4: {
      std::uint32_t bits = 0;
      std::memcpy(&bits, at(index), sizeof bits);
      return bits;
    }
    default: {
      std::uint64_t bits = 0;
      std::memcpy(&bits, at(index), sizeof bits);
      return bits;
    }
  }
}

void Buffer::set_bits(std::size_t index, std::uint64_t bits) {
  const auto two = static_cast<std::uint16_t>(bits);
  const auto four = static_cast<std::uint32_t>(bits);
  switch (element_size(dtype_)) {
    case 2: std::memcpy(at(index), &two, sizeof two); break;
    case 4: std::memcpy(at(index), &four, sizeof four); break;
    default: std::memcpy(at(index), &bits, sizeof bits); break;
  }
}

// f32 and f64 are the compiler's own formats, and the two-byte ones fit a table: going through
// decode would only cost time.
long double Buffer::value(std::size_t index) const {
  if (dtype_ == DType::f32) {
    float value = 0;
    std::memcpy(&value, at(index), sizeof value);
    return value;
  }
  if (dtype_ == DType::f64) {
    double value = 0;
    std::memcpy(&value, at(index), sizeof value);
    return value;
  }
  static const std::vector<long double> tables[] = {all_values(DType::f16),
                                                    all_values(DType::bf16)};
  return tables[dtype_ == DType::f16 ? 0 : 1][bits(index)];
}

void Buffer::set(std::size_t index, long double value) {
  if (dtype_ == DType::f32) {
    const auto rounded = static_cast<float>(value);
    std::memcpy(at(index), &rounded, sizeof rounded);
  } else if (dtype_ == DType::f64) {
    const auto rounded = static_cast<double>(value);
    std::memcpy(at(index), &rounded, sizeof rounded);
  } else {
    set_bits(index, round_to(format_of(dtype_), value));
  }
}

bool same_element(const Buffer& a, std::size_t i, const Buffer& b, std::size_t j) {
  const std::uint64_t first = a.bits(i);
  const std::uint64_t second = b.bits(j);
  if (first == second) return true;
  const Format& format = format_of(a.dtype());
  const std::uint64_t magnitude = format.sign_bit() - 1;
  return (first & magnitude) > format.infinity() && (second & magnitude) > format.infinity();
}

}  // namespace myops::tests
