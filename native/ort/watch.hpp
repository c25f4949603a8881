// SPDX-License-Identifier: Apache-2.0
// What MYOPS_CHECK_FINITE does in a session: results of CPU nodes are read once more.
#pragma once

#include <cinttypes>
#include <cstdio>

#include "host.hpp"
#include "myops/finite.hpp"

namespace myops::ort {

/// " from x = inf, beta = 1".
class ValuesText {
 public:
  void add(const char* name, double value) {
    const int written = std::snprintf(text_ + used_, sizeof text_ - used_, "%s %s = %g",
                                      used_ == 0 ? " from" : ",", name, value);
    if (written > 0 && used_ + static_cast<std::size_t>(written) < sizeof text_) {
      used_ += static_cast<std::size_t>(written);
    } else {
      text_[used_] = '\0';
    }
  }
  const char* text() const { return text_; }

 private:
  char text_[160] = "";
  std::size_t used_ = 0;
};

/// Looks for an element of an output that is not finite and reports it; `add_values(index, text)`
/// adds the values it was computed from.
template <class AddValues>
void watch(const char* op, const NodeName& node, const char* output, const void* data, DType dtype,
           std::int64_t count, const AddValues& add_values) {
  const std::int64_t index = first_non_finite(data, dtype, count);
  if (index < 0) return;
  ValuesText values;
  add_values(index, values);
  const Status status = Status::error(
      "[%s] %s of node \"%s\" should be finite (MYOPS_CHECK_FINITE). Received %g at element "
      "%" PRId64 " of %" PRId64
      "%s. Look for what gives these values: myops verify --check-finite.",
      op, output, node.text, element_value(data, dtype, index), index, count, values.text());
  report_once(status.message());
}

}  // namespace myops::ort
