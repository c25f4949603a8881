// SPDX-License-Identifier: Apache-2.0
// Errors without exceptions: the kernel library is called from hosts that must not see one.
#pragma once

#include <cstdarg>
#include <cstdio>

namespace myops {

/// Success, or a message of the form "[where] what should hold. Received what was found. Do this."
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;

  __attribute__((format(printf, 1, 2))) static Status error(const char* format, ...) noexcept {
    Status status;
    status.ok_ = false;
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(status.message_, sizeof status.message_, format, arguments);
    va_end(arguments);
    return status;
  }

  bool ok() const noexcept { return ok_; }
  const char* message() const noexcept { return message_; }

 private:
  bool ok_ = true;
  char message_[512] = "";
};

}  // namespace myops
