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

/// The only output, where the gradients are 1.
Buffer apply(Pass pass, const Buffer& x, double beta) {
  const KernelFn kernel = cpu_kernel(swish_op(), pass, x.dtype());
  return run(swish_op(), pass, kernel, pass_inputs_among(swish_op(), pass, x, 1), {beta}).front();
}

long double value_at(Pass pass, DType dtype, long double x, double beta) {
  return apply(pass, buffer_of(dtype, {x}), beta).value(0);
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
        CHECK(same(apply(Pass::forward, x, zero), half));
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
          const Buffer x = sweep(dtype);
          const Buffer positive = apply(pass, x, beta);
          const Buffer negative = apply(pass, negated(x), -beta);
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
        const Buffer x = sweep(dtype);
        const Buffer expected = apply(pass, x, largest / 2);
        CHECK(same(apply(pass, x, largest), expected));
        CHECK(same(apply(pass, x, std::numeric_limits<double>::max()), expected));
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

}  // namespace myops::tests
