// SPDX-License-Identifier: Apache-2.0
// One binary for many runtimes: which version of the ONNX Runtime C API to ask for.
#pragma once

#include <cstdint>
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

/// Element type and dims of a tensor, by reference: GetTensorTypeAndShape allocates what it
/// returns, a quarter of what a small node costs. `dims` may be null where the rank is 0.
using ShapeByReference = OrtStatus*(ORT_API_CALL*)(const OrtValue* value,
                                                   ONNXTensorElementDataType* type,
                                                   const std::int64_t** dims,
                                                   std::size_t* rank)NO_EXCEPTION;

/// The function of that kind, or null where the runtime has none. It came with API 24, which the
/// header in use does not declare; OrtApi grows at its end only, so its place is fixed.
inline ShapeByReference shape_by_reference(const OrtApiBase* base, int runtime_minor) noexcept {
  constexpr int since = 24;
  constexpr std::size_t place = 414 * sizeof(void*);
  static_assert(ORT_API_VERSION >= since || sizeof(OrtApi) <= place, "OrtApi's size has changed");
  const OrtApi* api = runtime_minor < since ? nullptr : base->GetApi(since);
  if (api == nullptr) return nullptr;
  ShapeByReference function = nullptr;
  std::memcpy(&function, reinterpret_cast<const char*>(api) + place, sizeof function);
  return function;
}

}  // namespace myops::ort
