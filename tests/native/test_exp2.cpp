// SPDX-License-Identifier: Apache-2.0
// math/fmath.hpp: what its comments state.
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "probes.hpp"

namespace myops::tests {
namespace {

template <class T>
struct Stated;
template <>
struct Stated<float> {
  static constexpr double polynomial = 1.7e-8;
  static constexpr double rounding = 1.2e-7;
  static constexpr int bias = 127;
  static constexpr float round_and_bias = 0x1.8p23f + 127;
};
template <>
struct Stated<double> {
  static constexpr double polynomial = 2.1e-17;
  static constexpr double rounding = 2.3e-16;
  static constexpr int bias = 1023;
  static constexpr double round_and_bias = 0x1.8p52 + 1023;
};

template <class T>
struct Split {
  std::vector<T> mantissa;
  std::vector<T> biased;
  std::vector<T> power;
};

template <class T>
Split<T> split(const Exp2Probe<T>& probe, const std::vector<T>& x, T hi, T lo) {
  Split<T> result{std::vector<T>(x.size()), std::vector<T>(x.size()), std::vector<T>(x.size())};
  probe.split(x.data(), hi, lo, result.mantissa.data(), result.biased.data(), result.power.data(),
              static_cast<int>(x.size()));
  return result;
}

template <class T>
std::vector<T> spread(double low, double high, int count) {
  std::vector<T> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<T>(low + (high - low) / count * i));
  return values;
}

/// x * (hi + lo) less the integer n, for |x| * hi up to 2^21: the product is split so that nothing
/// is lost.
template <class T>
long double residue(T x, T hi, T lo, long double n) {
  const long double product = static_cast<long double>(x) * hi;
  const long double error =
      std::fma(static_cast<long double>(x), static_cast<long double>(hi), -product);
  return (product - n) + error + static_cast<long double>(x) * lo;
}

/// Worst relative error of mantissa * 2^n, and the mantissa's and n's own rules.
template <class T>
void check_split(const std::string& isa, const Exp2Probe<T>& probe, const std::vector<T>& x, T hi,
                 T lo) {
  const Split<T> result = split(probe, x, hi, lo);
  double worst = 0;
  bool in_range = true;
  bool integer = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T n = result.biased[i] - Stated<T>::round_and_bias;
    const long double f = residue(x[i], hi, lo, n);
    const long double expected = std::exp2(f);
    worst =
        std::fmax(worst, static_cast<double>(std::fabs(result.mantissa[i] - expected) / expected));
    in_range = in_range && result.mantissa[i] >= T(0.70) && result.mantissa[i] <= T(1.42);
    // Rounding x * hi to T before the integer is found may move a tie by half an ulp of it.
    integer = integer && n == std::nearbyint(n) && std::fabs(f) <= 0.5L + std::fabs(n) * 1e-6L;
  }
  CAPTURE(isa);
  CAPTURE(sizeof(T));
  CHECK(worst <= Stated<T>::polynomial + Stated<T>::rounding);
  CHECK(in_range);
  CHECK(integer);
}

template <class T>
void check_products(const std::string& isa, const Exp2Probe<T>& probe) {
  check_split<T>(isa, probe, spread<T>(-0.5, 0.5, 100001), 1, 0);
  check_split<T>(isa, probe, spread<T>(-Stated<T>::bias, Stated<T>::bias, 100003), 1, 0);
  for (const double scale : {1.0, 1.702, 0.5, 37.0, 1e-30}) {
    T hi = 0;
    T lo = 0;
    probe.coefficient(static_cast<T>(scale), &hi, &lo);
    const double last = Stated<T>::bias * 0.69 / scale;
    check_split<T>(isa, probe, spread<T>(-last, last, 100003), hi, lo);
  }
}

/// Errors of rounding average out over many neighbours, those of the polynomial do not.
template <class T>
double polynomial_error(const Exp2Probe<T>& probe) {
  constexpr int windows = 64;
  constexpr int samples = 20000;
  double worst = 0;
  for (int w = 0; w < windows; ++w) {
    const double low = (w - windows / 2) / static_cast<double>(windows);
    const std::vector<T> x = spread<T>(low, low + 1.0 / windows, samples);
    const Split<T> result = split<T>(probe, x, 1, 0);
    long double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T n = result.biased[i] - Stated<T>::round_and_bias;
      const long double expected = std::exp2(static_cast<long double>(x[i]) - n);
      sum += (result.mantissa[i] - expected) / expected;
    }
    worst = std::fmax(worst, static_cast<double>(std::fabs(sum / samples)));
  }
  return worst;
}

template <class T>
void check_powers(const Exp2Probe<T>& probe) {
  std::vector<T> x;
  for (int n = -(Stated<T>::bias - 1); n <= Stated<T>::bias; ++n) x.push_back(static_cast<T>(n));
  const Split<T> result = split<T>(probe, x, 1, 0);
  bool right = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    right = right && result.mantissa[i] == 1 &&
            result.power[i] == std::ldexp(T(1), static_cast<int>(x[i]));
  }
  CHECK(right);
  for (int k = 0; k < Stated<T>::bias; ++k) right = right && probe.minus(k) == std::ldexp(T(1), -k);
  CHECK(right);
}

}  // namespace

TEST_CASE("split_exp2 has the stated error") {
  for_each_probe([](const std::string& isa, const MathProbe& probe) {
    check_products<float>(isa, probe.f32);
    check_products<double>(isa, probe.f64);
  });
}

TEST_CASE("split_exp2 is valid up to a product of 2^21") {
  for_each_probe([](const std::string& isa, const MathProbe& probe) {
    check_split<float>(isa, probe.f32, spread<float>(-2097151, 2097151, 100003), 1, 0);
    check_split<double>(isa, probe.f64, spread<double>(-2097151, 2097151, 100003), 1, 0);
  });
}

TEST_CASE("the polynomial of exp2_slope has the stated error") {
  for_each_probe([](const std::string& isa, const MathProbe& probe) {
    CAPTURE(isa);
    CHECK(polynomial_error(probe.f32) <= Stated<float>::polynomial);
    CHECK(polynomial_error(probe.f64) <= Stated<double>::polynomial);
  });
}

TEST_CASE("exp2_of and exp2_minus are exact for every exponent") {
  for_each_probe([](const std::string& isa, const MathProbe& probe) {
    CAPTURE(isa);
    check_powers(probe.f32);
    check_powers(probe.f64);
  });
}

TEST_CASE("split_exp2 of NaN is NaN") {
  for_each_probe([](const std::string& isa, const MathProbe& probe) {
    CAPTURE(isa);
    CHECK(std::isnan(split<float>(probe.f32, {NAN}, 1, 0).mantissa[0]));
    CHECK(std::isnan(split<double>(probe.f64, {NAN}, 1, 0).mantissa[0]));
  });
}

TEST_CASE("negative_log2_e_times has twice the precision of its type") {
  const long double log2_e = 1 / std::log(2.0L);
  for_each_probe([&](const std::string& isa, const MathProbe& probe) {
    CAPTURE(isa);
    for (const double scale : {1.0, 1.702, 0.5, 37.0, 1e-20, 1e30}) {
      CAPTURE(scale);
      float hi = 0;
      float lo = 0;
      const auto narrow = static_cast<float>(scale);
      probe.f32.coefficient(narrow, &hi, &lo);
      const long double expected = -log2_e * narrow;
      CHECK(static_cast<double>(std::fabs(hi + static_cast<long double>(lo) - expected)) <=
            static_cast<double>(-expected) * 0x1p-48);
      double high = 0;
      double low = 0;
      probe.f64.coefficient(scale, &high, &low);
      // As far as long double can tell.
      CHECK(static_cast<double>(std::fabs(static_cast<long double>(high) + low + log2_e * scale)) <=
            static_cast<double>(log2_e) * scale * 0x1p-62);
    }
  });
}

}  // namespace myops::tests
