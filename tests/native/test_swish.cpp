// SPDX-License-Identifier: Apache-2.0
// What only Swish promises. The values were computed in float64 elsewhere, so they guard the
// reference, too.
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

constexpr long double infinity = std::numeric_limits<long double>::infinity();

// Not to be called within CAPTURE: doctest evaluates that while it holds its lock, and a REQUIRE
// there would wait for it forever.
const OpInfo& swish_op() {
  const OpInfo* op = find_op("Swish");
  REQUIRE(op != nullptr);
  return *op;
}

/// One value; the gradients are 1.
long double value_at(Pass pass, DType dtype, long double x, double beta) {
  const std::vector<Buffer> inputs = pass_inputs(pass, buffer_of(dtype, {x}), 1);
  return run(cpu_kernel(swish_op(), pass, dtype), inputs, {beta}).value(0);
}

long double forward(DType dtype, long double x, double beta) {
  return value_at(Pass::forward, dtype, x, beta);
}

long double backward(DType dtype, long double x, double beta) {
  return value_at(Pass::backward, dtype, x, beta);
}

bool is_negative_zero(long double x) { return x == 0 && std::signbit(x); }
bool is_positive_zero(long double x) { return x == 0 && !std::signbit(x); }

doctest::Approx near(double value, double relative) {
  // Approx adds 1 to the magnitude it scales by unless told otherwise.
  return doctest::Approx(value).epsilon(relative).scale(0);
}

Buffer negated(const Buffer& from) {
  Buffer to(from.dtype(), from.count());
  for (std::size_t i = 0; i < from.count(); ++i) {
    to.set_bits(i, from.bits(i) ^ format_of(from.dtype()).sign_bit());
  }
  return to;
}

bool same(const Buffer& a, const Buffer& b) {
  for (std::size_t i = 0; i < a.count(); ++i) {
    if (!same_element(a, i, b, i)) return false;
  }
  return true;
}

Buffer sweep(DType dtype) {
  return element_size(dtype) == 2 ? all_patterns(dtype) : spread_patterns(dtype, 1 << 16, 5);
}

}  // namespace

TEST_SUITE("kernel") {
  TEST_CASE("swish: values of f64 and f32") {
    struct Case {
      double x;
      double beta;
      double value;
    };
    for (const Case& c :
         {Case{1, 1, 0.7310585786}, Case{1, 2, 0.8807970780}, Case{1, 1.702, 0.8457957659},
          Case{-2, 1.702, -0.0643413769}, Case{1, 0, 0.5}}) {
      CAPTURE(c.x);
      CAPTURE(c.beta);
      CHECK(static_cast<double>(forward(DType::f64, c.x, c.beta)) == near(c.value, 1e-9));
      CHECK(static_cast<double>(forward(DType::f32, c.x, c.beta)) == near(c.value, 3e-7));
    }
    for (const Case& c :
         {Case{1, 1, 0.9276705119}, Case{2, 1.702, 1.0738153543}, Case{1, 0, 0.5}}) {
      CAPTURE(c.x);
      CAPTURE(c.beta);
      CHECK(static_cast<double>(backward(DType::f64, c.x, c.beta)) == near(c.value, 1e-9));
      CHECK(static_cast<double>(backward(DType::f32, c.x, c.beta)) == near(c.value, 3e-7));
    }
  }

  TEST_CASE("swish: the f32 gradient is stable in the tails") {
    for (const long double x : {-200.0L, -100.0L, -88.0L, -20.0L, 0.0L, 17.0L, 88.0L, 200.0L}) {
      CAPTURE(static_cast<double>(x));
      for (const Pass pass : passes) CHECK(std::isfinite(value_at(pass, DType::f32, x, 1)));
    }
    CHECK(static_cast<double>(backward(DType::f32, -20, 1)) == near(-3.91619e-8, 2e-6));
    CHECK(static_cast<double>(backward(DType::f32, 17, 1)) == near(1.00000066, 6e-8));
    CHECK(backward(DType::f32, 0, 1) == 0.5L);
    CHECK(backward(DType::f32, 200, 1) == 1);
    // A denormal: e^-100 (1 - 100).
    CHECK(static_cast<double>(backward(DType::f32, -100, 1)) == near(-3.683e-42, 1e-3));
  }

  TEST_CASE("swish: signed zeros and limits at infinity") {
    for (const DType dtype : dtypes) {
      CAPTURE(std::string(dtype_name(dtype)));
      for (const double beta : {1.0, 1.702, 0.5, 37.0}) {
        CAPTURE(beta);
        CHECK(is_negative_zero(forward(dtype, -0.0L, beta)));
        CHECK(is_positive_zero(forward(dtype, 0.0L, beta)));
        CHECK(forward(dtype, infinity, beta) == infinity);
        CHECK(is_negative_zero(forward(dtype, -infinity, beta)));
        CHECK(backward(dtype, infinity, beta) == 1);
        CHECK(backward(dtype, -infinity, beta) == 0);
        CHECK(backward(dtype, 0.0L, beta) == 0.5L);
        // The negative beta's limits are the mirror image.
        CHECK(is_positive_zero(forward(dtype, infinity, -beta)));
        CHECK(forward(dtype, -infinity, -beta) == -infinity);
        CHECK(backward(dtype, infinity, -beta) == 0);
        CHECK(backward(dtype, -infinity, -beta) == 1);
      }
    }
  }

  TEST_CASE("swish: beta 0 is half of x, correctly rounded, everywhere") {
    for (const DType dtype : dtypes) {
      CAPTURE(std::string(dtype_name(dtype)));
      const Buffer x = sweep(dtype);
      Buffer half(dtype, x.count());
      for (std::size_t i = 0; i < x.count(); ++i) {
        half.set_bits(i, round_to(format_of(dtype), x.value(i) / 2));
      }
      for (const double zero : {0.0, -0.0}) {
        CHECK(same(run(cpu_kernel(swish_op(), Pass::forward, dtype), {x}, {zero}), half));
        CHECK(forward(dtype, infinity, zero) == infinity);
        CHECK(forward(dtype, -infinity, zero) == -infinity);
        CHECK(backward(dtype, -infinity, zero) == 0.5L);
        CHECK(backward(dtype, infinity, zero) == 0.5L);
      }
    }
  }

  TEST_CASE("swish: a negative beta mirrors the function, bit for bit") {
    for (const DType dtype : dtypes) {
      for (const Pass pass : passes) {
        for (const double beta : {1.0, 1.702, 3.0}) {
          const std::string name = describe(swish_op(), pass, dtype, {beta});
          CAPTURE(name);
          const KernelFn kernel = cpu_kernel(swish_op(), pass, dtype);
          const Buffer x = sweep(dtype);
          const Buffer positive = run(kernel, pass_inputs(pass, x, 1), {beta});
          const Buffer negative = run(kernel, pass_inputs(pass, negated(x), 1), {-beta});
          // y(x; b) = -y(-x; -b), so y' keeps its sign and y'' changes it.
          CHECK(same(positive, pass == Pass::backward ? negative : negated(negative)));
        }
      }
    }
  }

  TEST_CASE("swish: a beta out of range acts as half of the largest number") {
    for (const DType dtype : dtypes) {
      const double largest = dtype == DType::f64 ? std::numeric_limits<double>::max()
                                                 : std::numeric_limits<float>::max();
      for (const Pass pass : passes) {
        const std::string name = describe(swish_op(), pass, dtype, {largest});
        CAPTURE(name);
        const KernelFn kernel = cpu_kernel(swish_op(), pass, dtype);
        const std::vector<Buffer> inputs = pass_inputs(pass, sweep(dtype), 1);
        const Buffer expected = run(kernel, inputs, {largest / 2});
        CHECK(same(run(kernel, inputs, {largest}), expected));
        CHECK(same(run(kernel, inputs, {std::numeric_limits<double>::max()}), expected));
      }
      // A step at zero: nothing on the left, x on the right.
      CHECK(forward(dtype, 1, largest) == 1);
      CHECK(is_negative_zero(forward(dtype, -1, largest)));
      CHECK(is_positive_zero(forward(dtype, 0, largest)));
      CHECK(backward(dtype, 1, largest) == 1);
      CHECK(backward(dtype, -1, largest) == 0);
      CHECK(backward(dtype, 0, largest) == 0.5L);
    }
  }
}

TEST_SUITE("reference") {
  TEST_CASE("the derivatives of every reference match its differences") {
    for (const OpInfo& op : ops()) {
      const OpReference& reference = reference_of(op);
      for (const auto& set : reference.attribute_sets) {
        const std::vector<long double> attributes = rounded_attributes(DType::f64, set);
        const Interval bend = reference.bend(DType::f32, attributes.data());
        const long double unit = (bend.high - bend.low) / 256;
        const long double step = unit / 65536;
        for (std::size_t pass = 1; pass < pass_count; ++pass) {
          for (long double x = bend.low; x < bend.high; x += unit) {
            const auto at = [&](long double position, std::size_t p) {
              const long double in[pass_count] = {p > 0 ? 1 : position, p > 1 ? 1 : position,
                                                  position};
              return reference.formula[p](in, attributes.data()).value;
            };
            const long double slope =
                (at(x + step, pass - 1) - at(x - step, pass - 1)) / (2 * step);
            const long double derivative = at(x, pass);
            const auto error = static_cast<double>(std::fabs(derivative - slope));
            // Truncation of the difference; y'' and y''' grow with powers of 1 / unit.
            const auto allowed = static_cast<double>(
                1e-8L * (std::fabs(derivative) + (pass > 1 ? 1 / std::fabs(unit) : 1)));
            CHECK_MESSAGE(error <= allowed, std::string(op.name), " pass ", pass, " at ",
                          static_cast<double>(x));
          }
        }
      }
    }
  }
}

}  // namespace myops::tests
