// SPDX-License-Identifier: Apache-2.0
#include "myops/finite.hpp"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "math/half.hpp"

namespace myops {
namespace {

double value_of(float x) { return static_cast<double>(x); }
double value_of(double x) { return x; }
double value_of(Half x) { return static_cast<double>(to_float(x)); }
double value_of(BFloat16 x) { return static_cast<double>(to_float(x)); }

template <class Storage>
std::int64_t first_in(const void* data, std::int64_t count) {
  const auto* values = static_cast<const Storage*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(value_of(values[i]))) return i;
  }
  return -1;
}

template <class Storage>
double at(const void* data, std::int64_t index) {
  return value_of(static_cast<const Storage*>(data)[index]);
}

}  // namespace

bool checks_finite() noexcept {
  static const bool enabled = [] {
    const char* value = std::getenv("MYOPS_CHECK_FINITE");
    return value != nullptr && value[0] != '\0' && std::strcmp(value, "0") != 0;
  }();
  return enabled;
}

std::int64_t first_non_finite(const void* data, DType dtype, std::int64_t count) noexcept {
  switch (dtype) {
    case DType::f32: return first_in<float>(data, count);
    case DType::f64: return first_in<double>(data, count);
    case DType::f16: return first_in<Half>(data, count);
    case DType::bf16: return first_in<BFloat16>(data, count);
  }
  return -1;
}

double element_value(const void* data, DType dtype, std::int64_t index) noexcept {
  switch (dtype) {
    case DType::f32: return at<float>(data, index);
    case DType::f64: return at<double>(data, index);
    case DType::f16: return at<Half>(data, index);
    case DType::bf16: return at<BFloat16>(data, index);
  }
  return 0;
}

void report_once(const char* message) noexcept {
  static std::atomic<bool> done{false};
  if (!done.exchange(true)) std::fprintf(stderr, "%s\n", message);
}

}  // namespace myops
