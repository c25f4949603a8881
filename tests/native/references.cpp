// SPDX-License-Identifier: Apache-2.0
// To judge an operator against long double: write its passes below and add an entry to `table`. Set
// the bounds from `myops_native_tests --test-suite=kernel --success`, which prints the measured
// errors, and state the same figures on the functor.
#include "references.hpp"

#include <cmath>
#include <cstring>

#include "myops/kernels.hpp"

namespace myops::tests {
namespace {

// What a * b loses by rounding (Dekker), for doubles a and b: without it exp would be off by half
// an ulp of f64. std::fma does the same for long double, a hundred times slower.
long double product_error(long double a, long double b, long double product) {
  constexpr long double splitter = 4294967297.0L;  // 2^32 + 1 halves 64 bits
  const long double a_high = splitter * a - (splitter * a - a);
  const long double b_high = splitter * b - (splitter * b - b);
  const long double a_low = a - a_high;
  const long double b_low = b - b_high;
  return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
}

long double exp_of_product(long double a, long double b) {
  const long double product = a * b;
  const long double e = std::exp(product);
  // The error of a larger product is not small against 1, but its exp is 0 anyway.
  return product > -11000 ? e * (1 + product_error(a, b, product)) : e;
}

struct Sigmoids {
  long double x;
  long double beta;
  long double z;  // beta * x
  long double s;  // sigmoid(z)
  long double r;  // sigmoid(-z)
  bool at_limit;  // x is infinite and sigmoid is 0 or 1
};

Sigmoids sigmoids(long double x, const long double* attributes) {
  const long double beta = attributes[0];
  // 0 * inf is NaN, but beta 0 is the line x / 2.
  const long double finite = beta == 0 && std::isinf(x) ? 0 : x;
  const long double z = beta * finite;
  const long double e = exp_of_product(-std::fabs(beta), std::fabs(finite));
  const long double large = 1 / (1 + e);
  const long double small = e / (1 + e);
  return {x, beta, z, z < 0 ? small : large, z < 0 ? large : small, std::isinf(x) && beta != 0};
}

void swish(const long double* in, const long double* attributes, Expected* out) {
  const Sigmoids a = sigmoids(in[0], attributes);
  // -inf * 0 is NaN.
  out[0] = {a.at_limit && a.s == 0 ? std::copysign(0.0L, a.x) : a.x * a.s, 0, 0};
}

void swish_backward(const long double* in, const long double* attributes, Expected* out) {
  const Sigmoids a = sigmoids(in[1], attributes);
  if (a.at_limit) {
    out[0] = {in[0] * a.s, 0, 0};
    return;
  }
  const long double value = in[0] * a.s * (1 + a.z * a.r);
  const long double terms = std::fabs(in[0]) * a.s * (1 + std::fabs(a.z) * a.r);
  out[0] = {value, terms - std::fabs(value), 0};
}

void swish_double_backward(const long double* in, const long double* attributes, Expected* out) {
  const Sigmoids a = sigmoids(in[2], attributes);
  const long double factor = in[0] * in[1] * a.beta;
  // Kernels hold beta x at 64, where the rest is 1e-26; and beta * s * r may underflow in f32.
  const long double absolute = 1.1e-26L * std::fabs(factor) + 0x1p-142L;
  if (a.at_limit) {
    out[0] = {factor * 0, 0, absolute};
    return;
  }
  const long double value = factor * a.s * a.r * (2 + a.z * (a.r - a.s));
  const long double terms =
      std::fabs(factor) * a.s * a.r * (2 + std::fabs(a.z) * std::fabs(a.r - a.s));
  out[0] = {value, terms - std::fabs(value), absolute};
}

// f32 and f64 underflow at beta x = -104 and -745; above 40 sigmoid is 1.
Interval swish_bend(DType dtype, const long double* attributes) {
  const long double scale = attributes[0] == 0 ? 1 : attributes[0];
  const long double low = (dtype == DType::f64 ? -760 : -115) / scale;
  const long double high = 70 / scale;
  return low < high ? Interval{low, high} : Interval{high, low};
}

const OpReference table[] = {
    {"Swish",
     {swish, swish_backward, swish_double_backward},
     {{{2.5, 0}, {5, 1.2e-7}, {8, 1.2e-7}},
      {{2.5, 0}, {5, 2.3e-16}, {8, 2.3e-16}},
      {{0.51, 0}, {0.51, 1.2e-7}, {0.51, 1.2e-7}},
      {{0.51, 0}, {0.51, 1.2e-7}, {0.51, 1.2e-7}}},
     {{2.5, 0}, {4, 6e-8}, {}},
     {{1.0}, {1.702}, {-1.0}, {0.0}, {0.5}, {-3.0}, {1e-30}, {1e-36}, {37.0}},
     swish_bend},
};

}  // namespace

OpReferenceList references() { return {table, sizeof table / sizeof *table}; }

const OpReference* find_reference(std::string_view op) {
  for (const OpReference& reference : table) {
    if (reference.op == op) return &reference;
  }
  return nullptr;
}

std::vector<std::vector<double>> attribute_sets(const OpInfo& op) {
  std::vector<double> defaults;
  for (std::size_t i = 0; i < op.attribute_count; ++i) {
    defaults.push_back(op.attributes[i].default_value);
  }
  std::vector<std::vector<double>> sets{defaults};
  if (const OpReference* reference = find_reference(op.name)) {
    for (const auto& set : reference->attribute_sets) {
      if (set != defaults) sets.push_back(set);
    }
  } else if (op.attribute_count > 0) {
    for (const double factor : {1.702, -0.5}) {
      std::vector<double> set = defaults;
      for (double& value : set) value *= factor;
      sets.push_back(set);
    }
  }
  return sets;
}

Interval bend_of(const OpInfo& op, DType dtype, const std::vector<double>& attributes) {
  const OpReference* reference = find_reference(op.name);
  if (reference != nullptr) {
    return reference->bend(dtype, rounded_attributes(dtype, attributes).data());
  }
  // exp underflows at -104 in f32 and at -746 in f64.
  return dtype == DType::f64 ? Interval{-760, 760} : Interval{-115, 115};
}

bool kernels_have_fma() {
#if defined(__x86_64__)
  return std::strcmp(cpu_isa(), "baseline") != 0;
#else
  return true;
#endif
}

Bound bound_of(const OpInfo& op, DType dtype, Pass pass) {
  const bool is_half = element_size(dtype) == 2;
  const OpReference* reference = find_reference(op.name);
  if (reference == nullptr) return is_half ? Bound{0.51, 3e-7} : Bound{12, 3e-7};
  Bound bound = reference->bound[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(pass)];
  if (!kernels_have_fma() && !is_half) bound.ulps += ulps_without_fma;
  return bound;
}

std::vector<long double> rounded_attributes(DType dtype, const std::vector<double>& values) {
  std::vector<long double> rounded;
  for (const double value : values) {
    rounded.push_back(dtype == DType::f64 ? value : static_cast<float>(value));
  }
  return rounded;
}

}  // namespace myops::tests
