// SPDX-License-Identifier: Apache-2.0
// Loads a model, registers the plugin and runs it: C++, ONNX Runtime's C API and nothing else.
//
//   cpp_host MODEL.onnx [PLUGIN [RUNTIME]]
//
// The model has one float32 input and one float32 output; dims without a size become 4. The runtime
// is opened by its path, since the pip package holds it under a name that the linker does not look
// for; a program linked with libonnxruntime calls OrtGetApiBase() instead of the four lines that
// look it up.
#include <dlfcn.h>
#include <onnxruntime_c_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

const OrtApi* api = nullptr;

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "[cpp_host] %s\n", message.c_str());
  std::exit(1);
}

/// Every call of the C API returns null, or a status with the reason.
void check(OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = api->GetErrorMessage(status);
  api->ReleaseStatus(status);
  stop(message);
}

void load_runtime(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) stop(dlerror());
  const auto get_base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  if (get_base == nullptr) stop(std::string(path) + " exports no OrtGetApiBase");
  const OrtApiBase* base = get_base();
  // The oldest API that has what this program calls serves all newer runtimes, too.
  api = base->GetApi(16);
  if (api == nullptr) stop(std::string("ONNX Runtime ") + base->GetVersionString() + " is too old");
  std::printf("ONNX Runtime %s\n", base->GetVersionString());
}

std::vector<std::int64_t> input_shape(const OrtSession* session) {
  OrtTypeInfo* type = nullptr;
  check(api->SessionGetInputTypeInfo(session, 0, &type));
  const OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api->CastTypeInfoToTensorInfo(type, &info));
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  if (info != nullptr) check(api->GetTensorElementType(info, &element));
  if (element != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) stop("the input should be float32");
  std::size_t rank = 0;
  check(api->GetDimensionsCount(info, &rank));
  std::vector<std::int64_t> shape(rank);
  check(api->GetDimensions(info, shape.data(), rank));
  for (std::int64_t& size : shape) size = size < 0 ? 4 : size;
  api->ReleaseTypeInfo(type);
  return shape;
}

/// Numbers from -3 to 3.
std::vector<float> ramp(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = count == 1 ? 3.0F : -3.0F + 6.0F * static_cast<float>(i) / float(count - 1);
  }
  return values;
}

void print(const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api->GetTensorTypeAndShape(value, &info));
  std::size_t rank = 0;
  std::size_t count = 0;
  check(api->GetDimensionsCount(info, &rank));
  check(api->GetTensorShapeElementCount(info, &count));
  std::vector<std::int64_t> shape(rank);
  check(api->GetDimensions(info, shape.data(), rank));
  api->ReleaseTensorTypeAndShapeInfo(info);
  std::printf("output [");
  for (std::size_t i = 0; i < rank; ++i) {
    std::printf("%s%lld", i == 0 ? "" : ", ", static_cast<long long>(shape[i]));
  }
  std::printf("]\n");
  void* data = nullptr;
  check(api->GetTensorMutableData(const_cast<OrtValue*>(value), &data));
  for (std::size_t i = 0; i < count; ++i) {
    std::printf("%.9g\n", static_cast<double>(static_cast<const float*>(data)[i]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: cpp_host MODEL.onnx [PLUGIN [RUNTIME]]\n");
    return 2;
  }
  const char* plugin = argc > 2 ? argv[2] : MYOPS_ORT_PLUGIN;
  load_runtime(argc > 3 ? argv[3] : MYOPS_RUNTIME);

  OrtEnv* environment = nullptr;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "cpp_host", &environment));
  OrtSessionOptions* options = nullptr;
  check(api->CreateSessionOptions(&options));
  // The one line that a model with myops nodes needs. ONNX Runtime keeps the file open while a
  // session lives.
  check(api->RegisterCustomOpsLibrary_V2(options, plugin));
  OrtSession* session = nullptr;
  check(api->CreateSession(environment, argv[1], options, &session));

  OrtAllocator* allocator = nullptr;
  check(api->GetAllocatorWithDefaultOptions(&allocator));
  char* input_name = nullptr;
  char* output_name = nullptr;
  check(api->SessionGetInputName(session, 0, allocator, &input_name));
  check(api->SessionGetOutputName(session, 0, allocator, &output_name));

  const std::vector<std::int64_t> shape = input_shape(session);
  std::vector<float> values = ramp(shape);
  OrtMemoryInfo* memory = nullptr;
  check(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory));
  OrtValue* input = nullptr;
  check(api->CreateTensorWithDataAsOrtValue(memory, values.data(), values.size() * sizeof(float),
                                            shape.data(), shape.size(),
                                            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input));
  OrtValue* output = nullptr;
  const OrtValue* inputs[] = {input};
  const char* input_names[] = {input_name};
  const char* output_names[] = {output_name};
  check(api->Run(session, nullptr, input_names, inputs, 1, output_names, 1, &output));
  print(output);

  api->ReleaseValue(output);
  api->ReleaseValue(input);
  api->ReleaseMemoryInfo(memory);
  check(api->AllocatorFree(allocator, input_name));
  check(api->AllocatorFree(allocator, output_name));
  api->ReleaseSession(session);
  api->ReleaseSessionOptions(options);
  api->ReleaseEnv(environment);
  return 0;
}
