// SPDX-License-Identifier: Apache-2.0
#include "accuracy.hpp"

#include <cmath>
#include <sstream>

#include <doctest/doctest.h>

#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

struct Worst {
  double ulps = 0;  // error in ulps after taking off the bound's slack
  std::size_t index = 0;
  double slack = 0;         // the slack that the bound's ulps would need
  double stated_slack = 0;  // the same for the stated bound
};

// The forward pass has no cancellation, so even a result that underflows has the right sign.
bool wrong_sign(Pass pass, long double actual, long double expected) {
  return pass == Pass::forward && !std::isnan(expected) &&
         std::signbit(actual) != std::signbit(expected);
}

void widen(double& slack, double ulps, double bound, long double unit) {
  if (ulps > bound && unit > 0) {
    slack = std::fmax(slack, (ulps - bound) / static_cast<double>(unit));
  }
}

Worst measure(const OpReference& reference, Pass pass, const std::vector<Buffer>& inputs,
              const Buffer& output, const std::vector<double>& attributes) {
  const auto p = static_cast<std::size_t>(pass);
  const Bound bound = bound_of(reference, output.dtype(), pass);
  const Format& format = format_of(output.dtype());
  const std::vector<long double> rounded = rounded_attributes(output.dtype(), attributes);
  Worst worst;
  for (std::size_t i = 0; i < output.count(); ++i) {
    long double in[pass_count] = {};
    long double gradients = 1;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      in[k] = inputs[k].value(i);
      if (k + 1 < inputs.size()) gradients *= std::fabs(in[k]);
    }
    const Expected expected = reference.formula[p](in, rounded.data());
    const long double actual = output.value(i);
    const long double unit = ulp(format, expected.value);
    double ulps = error_in_ulps(format, actual, expected.value, expected.absolute);
    if (wrong_sign(pass, actual, expected.value)) ulps = HUGE_VAL;
    widen(worst.slack, ulps, bound.ulps, expected.cancelled / unit);
    widen(worst.stated_slack, ulps, reference.stated[p].ulps, gradients / unit);
    if (std::isfinite(ulps) && expected.cancelled > 0) {
      ulps -= static_cast<double>(bound.slack * expected.cancelled / unit);
    }
    if (ulps > worst.ulps) {
      worst.ulps = ulps;
      worst.index = i;
    }
  }
  return worst;
}

}  // namespace

void check_accuracy(const OpInfo& op, Pass pass, const std::vector<Buffer>& inputs,
                    const std::vector<double>& attributes) {
  const OpReference& reference = reference_of(op);
  const auto p = static_cast<std::size_t>(pass);
  const DType dtype = inputs.front().dtype();
  const Buffer output = run(cpu_kernel(op, pass, dtype), inputs, attributes);
  const Worst worst = measure(reference, pass, inputs, output, attributes);
  const Bound bound = bound_of(reference, dtype, pass);
  std::ostringstream message;
  message << describe(op, pass, dtype, attributes) << ": measured " << worst.ulps
          << " ulp, should be at most " << bound.ulps << "; slack needed " << worst.slack
          << ", given " << bound.slack << describe_element(inputs, output, worst.index);
  const std::string text = message.str();
  CHECK_MESSAGE(worst.ulps <= bound.ulps, text);
  const Bound& stated = reference.stated[p];
  if (dtype == DType::f32 && stated.ulps > 0 && kernels_have_fma()) {
    std::ostringstream promise;
    promise << describe(op, pass, dtype, attributes) << ": stated " << stated.ulps << " ulp + "
            << stated.slack << ", needs slack " << worst.stated_slack;
    const std::string stated_text = promise.str();
    CHECK_MESSAGE(worst.stated_slack <= stated.slack, stated_text);
  }
}

}  // namespace myops::tests
