// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's C API out of a libonnxruntime.so named at run time, with owners for its objects.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <onnxruntime_c_api.h>

namespace myops::soak {

/// A call that failed, with the runtime's message.
struct RuntimeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The runtime's functions and its one environment.
class Runtime {
 public:
  /// Loads the library.
  explicit Runtime(const std::string& library);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const OrtApi& api() const { return *api_; }
  const OrtEnv* environment() const { return environment_; }
  const std::string& version() const { return version_; }

  /// Throws RuntimeError if the call failed.
  void check(OrtStatus* status) const;

 private:
  const OrtApi* api_ = nullptr;
  OrtEnv* environment_ = nullptr;
  std::string version_;
};

struct Value {
  Value(const Runtime& runtime, OrtValue* value) : runtime(&runtime), value(value) {}
  Value(Value&& other) noexcept : runtime(other.runtime), value(other.value) {
    other.value = nullptr;
  }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value();

  const Runtime* runtime;
  OrtValue* value;
};

/// A tensor over memory of the caller's, which ONNX Runtime only reads.
Value tensor_over(const Runtime& runtime, const void* data, std::size_t bytes,
                  const std::vector<std::int64_t>& shape, ONNXTensorElementDataType type);

/// How a session is made.
struct SessionPlan {
  std::string model;
  std::string plugin;
  int threads = 1;
  int registrations = 1;
};

class Session {
 public:
  Session(const Runtime& runtime, const SessionPlan& plan);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Inputs x0, x1, ...; outputs y0, y1, ...
  std::vector<Value> run(const std::vector<Value>& inputs, std::size_t output_count) const;

 private:
  const Runtime& runtime_;
  OrtSession* session_ = nullptr;
};

}  // namespace myops::soak
