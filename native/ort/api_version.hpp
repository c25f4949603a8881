// SPDX-License-Identifier: Apache-2.0
// One binary for many runtimes: which version of the ONNX Runtime C API to ask for.
#pragma once

#include <cstdlib>
#include <cstring>

#include <onnxruntime_c_api.h>

namespace myops::ort {

// Shape inference for custom ops and the parallel-for came with these.
inline constexpr int oldest_minor = 16;

/// The minor version in "1.minor.patch", or -1.
inline int minor_version(const char* version) noexcept {
  if (version == nullptr || std::strncmp(version, "1.", 2) != 0) return -1;
  char* end = nullptr;
  const long minor = std::strtol(version + 2, &end, 10);
  return end == version + 2 || minor < 0 || minor > 100000 ? -1 : static_cast<int>(minor);
}

/// The API version both sides know. Asking a runtime for more returns null and prints to stderr.
inline int shared_api_version(int runtime_minor) noexcept {
  return runtime_minor < ORT_API_VERSION ? runtime_minor : ORT_API_VERSION;
}

}  // namespace myops::ort
