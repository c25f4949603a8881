// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace myops::soak {

namespace {

// What the oldest runtime offers that the plugin serves, and enough for this program.
constexpr std::uint32_t api_version = 16;

}  // namespace

Runtime::Runtime(const std::string& library) {
  // Never closed: ONNX Runtime keeps threads and statics until the process ends.
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw RuntimeError(dlerror());
  const auto get = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(handle, "OrtGetApiBase"));
  if (get == nullptr) throw RuntimeError(library + " exports no OrtGetApiBase");
  const OrtApiBase* base = get();
  version_ = base->GetVersionString();
  api_ = base->GetApi(api_version);
  if (api_ == nullptr) throw RuntimeError("ONNX Runtime " + version_ + " is too old");
  check(api_->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "soak", &environment_));
}

Runtime::~Runtime() {
  if (environment_ != nullptr) api_->ReleaseEnv(environment_);
}

void Runtime::check(OrtStatus* status) const {
  if (status == nullptr) return;
  const std::string message = api_->GetErrorMessage(status);
  api_->ReleaseStatus(status);
  throw RuntimeError(message);
}

Value::~Value() {
  if (value != nullptr) runtime->api().ReleaseValue(value);
}

Value tensor_over(const Runtime& runtime, const void* data, std::size_t bytes,
                  const std::vector<std::int64_t>& shape, ONNXTensorElementDataType type) {
  OrtMemoryInfo* memory = nullptr;
  runtime.check(runtime.api().CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory));
  OrtValue* value = nullptr;
  OrtStatus* status = runtime.api().CreateTensorWithDataAsOrtValue(
      memory, const_cast<void*>(data), bytes, shape.data(), shape.size(), type, &value);
  runtime.api().ReleaseMemoryInfo(memory);
  runtime.check(status);
  return {runtime, value};
}

Session::Session(const Runtime& runtime, const SessionPlan& plan) : runtime_(runtime) {
  const OrtApi& api = runtime.api();
  OrtSessionOptions* options = nullptr;
  runtime.check(api.CreateSessionOptions(&options));
  const std::unique_ptr<OrtSessionOptions, void (*)(OrtSessionOptions*)> owner(
      options, api.ReleaseSessionOptions);
  runtime.check(api.SetIntraOpNumThreads(options, plan.threads));
  for (int i = 0; i < plan.registrations; ++i) {
    runtime.check(api.RegisterCustomOpsLibrary_V2(options, plan.plugin.c_str()));
  }
  runtime.check(api.CreateSession(runtime.environment(), plan.model.c_str(), options, &session_));
}

Session::~Session() { runtime_.api().ReleaseSession(session_); }

std::vector<Value> Session::run(const std::vector<Value>& inputs, std::size_t output_count) const {
  static constexpr const char* input_names[] = {"x0", "x1", "x2", "x3"};
  static constexpr const char* output_names[] = {"y0", "y1", "y2", "y3"};
  std::vector<const OrtValue*> given;
  for (const Value& input : inputs) given.push_back(input.value);
  std::vector<OrtValue*> results(output_count, nullptr);
  OrtStatus* status = runtime_.api().Run(session_, nullptr, input_names, given.data(), given.size(),
                                         output_names, output_count, results.data());
  std::vector<Value> owned;
  for (OrtValue* result : results) owned.emplace_back(runtime_, result);
  runtime_.check(status);
  return owned;
}

}  // namespace myops::soak
