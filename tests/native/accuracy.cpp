// SPDX-License-Identifier: Apache-2.0
#include "accuracy.hpp"

#include <cmath>
#include <sstream>

#include <doctest/doctest.h>

#include "references.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

/// What a kernel should give: by the op's entry in references.cpp, else by its own f64 kernel.
class Oracle {
 public:
  Oracle(const OpInfo& op, Pass pass, const std::vector<Buffer>& inputs,
         const std::vector<double>& attributes)
      : op_(op),
        pass_(pass),
        inputs_(inputs),
        in_(inputs.size()),
        attributes_(rounded_attributes(inputs.front().dtype(), attributes)) {
    if (const OpReference* reference = find_reference(op.name)) {
      formula_ = reference->formula[static_cast<std::size_t>(pass)];
      return;
    }
    std::vector<Buffer> wide;
    for (const Buffer& input : inputs) {
      wide.emplace_back(DType::f64, input.count());
      for (std::size_t i = 0; i < input.count(); ++i) wide.back().set(i, input.value(i));
    }
    const std::vector<double> rounded(attributes_.begin(), attributes_.end());
    wide_ = run(op, pass, cpu_kernel(op, pass, DType::f64), wide, rounded);
  }

  bool has_entry() const { return formula_ != nullptr; }

  /// The outputs at one element.
  void at(std::size_t element, Expected* outputs) {
    if (has_entry()) {
      for (std::size_t k = 0; k < in_.size(); ++k) in_[k] = inputs_[k].value(element);
      formula_(in_.data(), attributes_.data(), outputs);
      return;
    }
    // Terms as large as the gradients, and the inputs behind the first, may cancel or underflow.
    // The forward pass has no cancellation: it is judged in ulps.
    const long double size = size_of_terms(element);
    const long double cancelled = pass_ == Pass::forward ? 0 : size;
    const long double absolute = 0x1p-142L * std::fmax(size, 1.0L);
    for (std::size_t k = 0; k < wide_.size(); ++k) {
      outputs[k] = {wide_[k].value(element), cancelled, absolute};
    }
  }

  /// The product of the gradients: of g, and of the h together.
  long double gradients(std::size_t element) const {
    const std::size_t count = inputs_.size() - op_.input_count;
    long double product = 1;
    if (count > 0) product = std::fabs(inputs_[count - 1].value(element));
    if (count > 1) {
      long double sum = 0;
      for (std::size_t k = 0; k + 1 < count; ++k) sum += std::fabs(inputs_[k].value(element));
      product *= sum;
    }
    return product;
  }

 private:
  long double size_of_terms(std::size_t element) const {
    long double size = gradients(element);
    for (std::size_t k = 1; k < op_.input_count; ++k) {
      size *= std::fmax(1.0L, std::fabs(inputs_[position(op_, pass_, k)].value(element)));
    }
    return std::isfinite(size) ? size : 0;
  }

  const OpInfo& op_;
  Pass pass_;
  const std::vector<Buffer>& inputs_;
  std::vector<long double> in_;  // one element of them
  std::vector<long double> attributes_;
  Formula formula_ = nullptr;
  std::vector<Buffer> wide_;
};

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

/// One per output.
std::vector<Worst> measure(const OpInfo& op, Pass pass, Oracle& oracle,
                           const std::vector<Buffer>& outputs, const Bound& stated) {
  const DType dtype = outputs.front().dtype();
  const Bound bound = bound_of(op, dtype, pass);
  const Format& format = format_of(dtype);
  std::vector<Worst> all(outputs.size());
  std::vector<Expected> expected(outputs.size());
  for (std::size_t i = 0; i < outputs.front().count(); ++i) {
    oracle.at(i, expected.data());
    const long double gradients = oracle.gradients(i);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const Expected& e = expected[k];
      Worst& worst = all[k];
      const long double actual = outputs[k].value(i);
      const long double unit = ulp(format, e.value);
      double ulps = error_in_ulps(format, actual, e.value, e.absolute);
      if (wrong_sign(pass, actual, e.value)) ulps = HUGE_VAL;
      widen(worst.slack, ulps, bound.ulps, e.cancelled / unit);
      widen(worst.stated_slack, ulps, stated.ulps, gradients / unit);
      if (std::isfinite(ulps) && e.cancelled > 0) {
        ulps -= static_cast<double>(bound.slack * e.cancelled / unit);
      }
      if (ulps > worst.ulps) {
        worst.ulps = ulps;
        worst.index = i;
      }
    }
  }
  return all;
}

Bound stated_bound(const OpInfo& op, Pass pass, DType dtype) {
  const OpReference* reference = find_reference(op.name);
  if (reference == nullptr || dtype != DType::f32 || !kernels_have_fma()) return {};
  return reference->stated[static_cast<std::size_t>(pass)];
}

}  // namespace

void check_accuracy(const OpInfo& op, Pass pass, const std::vector<Buffer>& inputs,
                    const std::vector<double>& attributes) {
  const DType dtype = inputs.front().dtype();
  // Nothing to judge f64 kernels by; the Python tests do.
  if (dtype == DType::f64 && find_reference(op.name) == nullptr) return;
  const std::vector<Buffer> outputs =
      run(op, pass, cpu_kernel(op, pass, dtype), inputs, attributes);
  Oracle oracle(op, pass, inputs, attributes);
  const Bound bound = bound_of(op, dtype, pass);
  const Bound stated = stated_bound(op, pass, dtype);
  const std::vector<Worst> all = measure(op, pass, oracle, outputs, stated);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const Worst& worst = all[k];
    std::ostringstream message;
    message << describe(op, pass, dtype, attributes) << ", output " << k << ": measured "
            << worst.ulps << " ulp, should be at most " << bound.ulps << "; slack needed "
            << worst.slack << ", given " << bound.slack
            << describe_element(inputs, outputs[k], worst.index);
    if (!oracle.has_entry()) {
      message << ". Judged against the op's own f64 kernel; a long-double entry in "
                 "tests/native/references.cpp is optional and may state other bounds";
    }
    const std::string text = message.str();
    CHECK_MESSAGE(worst.ulps <= bound.ulps, text);
    if (stated.ulps > 0) {
      std::ostringstream promise;
      promise << describe(op, pass, dtype, attributes) << ", output " << k << ": stated "
              << stated.ulps << " ulp + " << stated.slack << ", needs slack " << worst.stated_slack;
      const std::string stated_text = promise.str();
      CHECK_MESSAGE(worst.stated_slack <= stated.slack, stated_text);
    }
  }
}

}  // namespace myops::tests
