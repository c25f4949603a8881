// SPDX-License-Identifier: Apache-2.0
// The normalizations of every ISA and storage type against long double.
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "math/half.hpp"
#include "myops/norm.hpp"

namespace myops::tests {
namespace {

template <class Storage>
struct Format;
template <>
struct Format<float> {
  static constexpr DType dtype = DType::f32;
  using Compute = float;
  static constexpr double ulp = 0x1p-23, tolerance = 4;
  static double get(float x) { return static_cast<double>(x); }
  static float put(double x) { return static_cast<float>(x); }
};
template <>
struct Format<double> {
  static constexpr DType dtype = DType::f64;
  using Compute = double;
  static constexpr double ulp = 0x1p-52, tolerance = 5;
  static double get(double x) { return x; }
  static double put(double x) { return x; }
};
template <>
struct Format<Half> {
  static constexpr DType dtype = DType::f16;
  using Compute = float;
  static constexpr double ulp = 0x1p-10, tolerance = 0.51;
  static double get(Half x) { return static_cast<double>(to_float(x)); }
  static Half put(double x) { return to_half(static_cast<float>(x)); }
};
template <>
struct Format<BFloat16> {
  static constexpr DType dtype = DType::bf16;
  using Compute = float;
  static constexpr double ulp = 0x1p-7, tolerance = 0.51;
  static double get(BFloat16 x) { return static_cast<double>(to_float(x)); }
  static BFloat16 put(double x) { return to_bfloat16(static_cast<float>(x)); }
};

template <class Storage>
using Values = std::vector<Storage>;

template <class Storage>
Values<Storage> random_values(std::int64_t count, double scale, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> distribution(-1, 1);
  Values<Storage> values(static_cast<std::size_t>(count));
  for (Storage& value : values) value = Format<Storage>::put(scale * distribution(generator));
  return values;
}

/// Within the tolerance in units of the last place of `truth`, denormals rounded to a few of them.
template <class Storage>
bool close(Storage value, long double truth, double more = 1) {
  const double got = Format<Storage>::get(value);
  const double smallest = Format<Storage>::dtype == DType::f64   ? 0x1p-1074
                          : Format<Storage>::dtype == DType::f16 ? 0x1p-24
                                                                 : 0x1p-133;
  int exponent = 0;
  std::frexp(static_cast<double>(truth), &exponent);
  const double unit = std::ldexp(Format<Storage>::ulp, exponent - 1);
  const double allowed = more * Format<Storage>::tolerance * unit + 2 * smallest;
  return std::fabs(static_cast<double>(got - truth)) <= allowed;
}

/// One row in long double.
template <class Storage>
struct Reference {
  std::vector<long double> x, weight;
  long double inverse = 0;

  Reference(const Storage* row, const Storage* weights, std::int64_t width, double eps) {
    long double squares = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      x.push_back(static_cast<long double>(Format<Storage>::get(row[i])));
      weight.push_back(static_cast<long double>(Format<Storage>::get(weights[i])));
      squares += x.back() * x.back();
    }
    if (Format<Storage>::dtype != DType::f64) eps = static_cast<double>(static_cast<float>(eps));
    inverse = 1 / std::sqrt(squares / static_cast<long double>(width) + eps);
  }

  long double y(std::size_t i) const { return x[i] * inverse * weight[i]; }
};

constexpr std::int64_t widths[] = {1, 2, 7, 63, 64, 65, 255, 1024, 1025, 3000};
constexpr std::int64_t rows = 3;

const OpInfo& rms_norm() { return *find_norm("RMSNorm"); }

/// Calls `check(kernels, Storage{})` for all ISAs of the machine and all storage types.
template <class Check>
void for_each_norm(Check check) {
  const IsaList isas = cpu_isas();
  for (std::size_t i = 0; i < isas.count; ++i) {
    CAPTURE(isas.name[i]);
    check(norm_kernels_for_isa(isas.name[i], rms_norm(), DType::f32), float{});
    check(norm_kernels_for_isa(isas.name[i], rms_norm(), DType::f64), double{});
    check(norm_kernels_for_isa(isas.name[i], rms_norm(), DType::f16), Half{});
    check(norm_kernels_for_isa(isas.name[i], rms_norm(), DType::bf16), BFloat16{});
  }
}

template <class Storage, class Compute>
void run_backward(const NormKernels& kernels, const Values<Storage>& grad, const Values<Storage>& x,
                  const Values<Storage>& weight, Values<Storage>& x_grad,
                  std::vector<Compute>& weight_grad, std::int64_t width) {
  kernels.backward({grad.data(),
                    x.data(),
                    weight.data(),
                    x_grad.data(),
                    weight_grad.data(),
                    rows,
                    width,
                    {1e-5}});
}

template <class Storage>
bool same_bits(const Values<Storage>& a, const Values<Storage>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Storage)) == 0;
}

template <class T>
std::vector<char> bytes(const std::vector<T>& values) {
  std::vector<char> result(values.size() * sizeof(T));
  std::memcpy(result.data(), values.data(), result.size());
  return result;
}

}  // namespace

TEST_CASE("norm: forward, with and without residual, in place and split") {
  for_each_norm([](NormKernels kernels, auto storage) {
    using Storage = decltype(storage);
    for (const std::int64_t width : widths) {
      CAPTURE(width);
      const auto x = random_values<Storage>(rows * width, 3, 1);
      const auto residual = random_values<Storage>(rows * width, 3, 2);
      const auto weight = random_values<Storage>(width, 2, 3);
      Values<Storage> y(x.size());
      kernels.forward({x.data(), nullptr, weight.data(), y.data(), nullptr, rows, width, {1e-5}});
      std::size_t wrong = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        const Reference<Storage> truth(x.data() + row * width, weight.data(), width, 1e-5);
        for (std::int64_t i = 0; i < width; ++i) {
          const auto at = static_cast<std::size_t>(row * width + i);
          wrong += close(y[at], truth.y(static_cast<std::size_t>(i))) ? 0 : 1;
        }
      }
      CHECK(wrong == 0);

      Values<Storage> in_place = x;
      kernels.forward(
          {in_place.data(), nullptr, weight.data(), in_place.data(), nullptr, rows, width, {1e-5}});
      CHECK(same_bits(in_place, y));

      Values<Storage> parts(x.size());
      kernels.forward({x.data(), nullptr, weight.data(), parts.data(), nullptr, 1, width, {1e-5}});
      kernels.forward({x.data() + width,
                       nullptr,
                       weight.data(),
                       parts.data() + width,
                       nullptr,
                       rows - 1,
                       width,
                       {1e-5}});
      CHECK(same_bits(parts, y));

      Values<Storage> sum(x.size());
      Values<Storage> added(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        using F = Format<Storage>;
        sum[i] = F::put(static_cast<typename F::Compute>(F::get(x[i])) +
                        static_cast<typename F::Compute>(F::get(residual[i])));
      }
      kernels.forward(
          {sum.data(), nullptr, weight.data(), added.data(), nullptr, rows, width, {1e-5}});
      Values<Storage> as_sum = x;
      Values<Storage> as_y = residual;
      kernels.forward({as_sum.data(),
                       as_y.data(),
                       weight.data(),
                       as_y.data(),
                       as_sum.data(),
                       rows,
                       width,
                       {1e-5}});
      CHECK(same_bits(as_sum, sum));
      CHECK(same_bits(as_y, added));
    }
  });
}

TEST_CASE("norm: backward") {
  for_each_norm([](NormKernels kernels, auto storage) {
    using Storage = decltype(storage);
    using Compute = typename Format<Storage>::Compute;
    for (const std::int64_t width : widths) {
      CAPTURE(width);
      const auto x = random_values<Storage>(rows * width, 3, 1);
      const auto grad = random_values<Storage>(rows * width, 1, 2);
      const auto weight = random_values<Storage>(width, 2, 3);
      Values<Storage> x_grad(x.size());
      std::vector<Compute> weight_grad(weight.size(), 0);
      run_backward(kernels, grad, x, weight, x_grad, weight_grad, width);
      const double epsilon = static_cast<double>(std::numeric_limits<Compute>::epsilon());
      const double rounding = Format<Storage>::tolerance < 1 ? Format<Storage>::ulp / 2 : 0;
      std::vector<long double> shares(weight.size(), 0);
      std::size_t wrong = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        const Reference<Storage> truth(x.data() + row * width, weight.data(), width, 1e-5);
        long double mean = 0;
        long double mean_size = 0;
        std::vector<long double> g;
        for (std::int64_t i = 0; i < width; ++i) {
          const auto k = static_cast<std::size_t>(i);
          g.push_back(static_cast<long double>(
              Format<Storage>::get(grad[static_cast<std::size_t>(row * width) + k])));
          const long double product = g[k] * truth.weight[k] * truth.x[k] * truth.inverse;
          mean += product;
          mean_size += std::fabs(product);
          shares[k] += g[k] * truth.x[k] * truth.inverse;
        }
        mean /= static_cast<long double>(width);
        mean_size /= static_cast<long double>(width);
        for (std::int64_t i = 0; i < width; ++i) {
          const auto k = static_cast<std::size_t>(i);
          const long double term = truth.inverse * g[k] * truth.weight[k];
          const long double other = truth.inverse * truth.x[k] * truth.inverse * mean;
          const double got =
              Format<Storage>::get(x_grad[static_cast<std::size_t>(row * width) + k]);
          // In units of what is summed: of that little may be left.
          const long double size =
              std::fabs(term) + std::fabs(truth.inverse * truth.x[k] * truth.inverse) * mean_size;
          const long double allowed = 8 * epsilon * size + rounding * std::fabs(term - other) +
                                      (Format<Storage>::dtype == DType::f16 ? 0x1p-25L : 0);
          wrong += std::fabs(got - (term - other)) <= allowed ? 0 : 1;
        }
      }
      for (std::size_t i = 0; i < weight.size(); ++i) {
        const double got = static_cast<double>(weight_grad[i]);
        wrong += std::fabs(got - static_cast<double>(shares[i])) <= 16 * epsilon ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("norm: the same bits on every ISA") {
  // No kernel fuses a multiplication with an addition: the baseline, which cannot, agrees, too.
  std::map<std::pair<DType, std::int64_t>, std::vector<std::vector<char>>> first;
  for_each_norm([&](NormKernels kernels, auto storage) {
    using Storage = decltype(storage);
    using Compute = typename Format<Storage>::Compute;
    for (const std::int64_t width : widths) {
      CAPTURE(width);
      const auto x = random_values<Storage>(rows * width, 3, 1);
      const auto other = random_values<Storage>(rows * width, 1, 2);
      const auto weight = random_values<Storage>(width, 2, 3);
      Values<Storage> y(x.size());
      Values<Storage> sum(x.size());
      Values<Storage> x_grad(x.size());
      std::vector<Compute> weight_grad(weight.size(), 0);
      kernels.forward(
          {x.data(), other.data(), weight.data(), y.data(), sum.data(), rows, width, {1e-5}});
      run_backward(kernels, other, x, weight, x_grad, weight_grad, width);
      const std::vector<std::vector<char>> found = {bytes(y), bytes(sum), bytes(x_grad),
                                                    bytes(weight_grad)};
      const auto known = first.try_emplace({Format<Storage>::dtype, width}, found).first;
      const bool same = known->second == found;
      CHECK(same);
    }
  });
}

TEST_CASE("norm: squares outside the exponent range, zeros, NaN and infinities") {
  const IsaList isas = cpu_isas();
  constexpr std::int64_t width = 100;
  const Values<double> weight(width, 1.0);
  const Values<float> weight_f32(width, 1.0f);
  for (std::size_t i = 0; i < isas.count; ++i) {
    const auto f64 = norm_kernels_for_isa(isas.name[i], rms_norm(), DType::f64);
    const auto f32 = norm_kernels_for_isa(isas.name[i], rms_norm(), DType::f32);
    for (const double scale : {1e300, 1e-150, 1e-300, 1e-310, 1e-322, 1e160}) {
      CAPTURE(scale);
      const auto x = random_values<double>(width, scale, 5);
      Values<double> y(x.size());
      f64.forward({x.data(), nullptr, weight.data(), y.data(), nullptr, 1, width, {0}});
      const Reference<double> truth(x.data(), weight.data(), width, 0);
      for (std::size_t k = 0; k < y.size(); ++k) CHECK(close(y[k], truth.y(k)));
    }
    for (const double scale : {1e37, 1e-25, 1e-38}) {
      CAPTURE(scale);
      const auto x = random_values<float>(width, scale, 5);
      Values<float> y(x.size());
      f32.forward({x.data(), nullptr, weight_f32.data(), y.data(), nullptr, 1, width, {0}});
      const Reference<float> truth(x.data(), weight_f32.data(), width, 0);
      for (std::size_t k = 0; k < y.size(); ++k) CHECK(close(y[k], truth.y(k)));
    }
    Values<float> x(width, 0.0f);
    Values<float> y(width);
    f32.forward({x.data(), nullptr, weight_f32.data(), y.data(), nullptr, 1, width, {1e-6}});
    CHECK(same_bits(x, y));
    f32.forward({x.data(), nullptr, weight_f32.data(), y.data(), nullptr, 1, width, {0}});
    CHECK(std::isnan(y[0]));
    x.assign(width, 1.0f);
    x[7] = std::numeric_limits<float>::infinity();
    f32.forward({x.data(), nullptr, weight_f32.data(), y.data(), nullptr, 1, width, {1e-6}});
    CHECK(std::isnan(y[7]));
    CHECK(y[8] == 0);
    x[7] = std::numeric_limits<float>::quiet_NaN();
    f32.forward({x.data(), nullptr, weight_f32.data(), y.data(), nullptr, 1, width, {1e-6}});
    for (const float value : y) CHECK(std::isnan(value));
    f32.forward({nullptr, nullptr, weight_f32.data(), nullptr, nullptr, 0, width, {1e-6}});
  }
  const bool known = norm_kernels_for_isa("nonsense", rms_norm(), DType::f32).forward != nullptr;
  CHECK(!known);
}

TEST_CASE("plan_rows covers all rows once") {
  for (const std::int64_t width : {1, 3, 100, 1024, 100000}) {
    for (const std::int64_t count : {0, 1, 2, 7, 64, 1000, 3072}) {
      for (const std::int64_t most : {1, 2, 8, 16}) {
        const TaskPlan plan = plan_rows(count, width, most);
        CHECK(plan.tasks <= most);
        CHECK(plan.tasks <= (count == 0 ? 0 : count));
        CHECK(plan.tasks * plan.grain >= count);
        CHECK((plan.tasks == 0 || (plan.tasks - 1) * plan.grain < count));
        if (count * width < 32768) CHECK(plan.tasks <= 1);
      }
    }
  }
}

}  // namespace myops::tests
