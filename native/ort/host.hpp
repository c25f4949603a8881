// SPDX-License-Identifier: Apache-2.0
// What the kernels of all operators need from ONNX Runtime's C API.
#pragma once

#include <cstdio>
#include <cstring>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "myops/broadcast.hpp"
#include "op.hpp"

namespace myops::ort {

// ORT has no query for its pool's size; eight tasks keep small pools busy and cost large ones
// little.
inline constexpr std::int64_t most_tasks = 8;

// The API version in which KernelContext_ParallelFor appeared: behind the end of older tables.
inline constexpr int parallel_for_since = 17;

/// Returns the error of a call, if it is one.
#define MYOPS_RETURN_IF_ERROR(call)                                   \
  do {                                                                \
    if (OrtStatus* error_ = (call); error_ != nullptr) return error_; \
  } while (0)

inline const OpConfig& self(const OrtCustomOp* op) {
  return static_cast<const CustomOp*>(op)->config;
}

inline OrtStatus* fail(const OrtApi* api, const Status& status) {
  // Not ORT_EP_FAIL: onnxruntime's Python wrapper answers that one by trying other providers.
  return api->CreateStatus(ORT_INVALID_ARGUMENT, status.message());
}

/// The node's name for messages; empty where the name is too long for the buffer.
struct NodeName {
  char text[128] = "";

  NodeName() = default;
  NodeName(const OpConfig& op, const OrtKernelInfo* node) {
    std::size_t size = sizeof text;
    OrtStatus* status = op.runtime.api->KernelInfo_GetNodeName(node, text, &size);
    if (status != nullptr) {
      op.runtime.api->ReleaseStatus(status);
      text[0] = '\0';
    }
  }
};

/// The attribute's value; its default where the node does not have it. Any other failure, such as
/// a string where a number should be, is the model's error and must not become the default.
inline OrtStatus* read_attribute(const OpConfig& op, const OrtKernelInfo* node, std::size_t index,
                                 double* value) {
  const AttributeInfo& attribute = op.info->attributes[index];
  float given = 0;
  OrtStatus* status = op.runtime.api->KernelInfoGetAttribute_float(node, attribute.name, &given);
  if (status == nullptr) {
    *value = given;
    return nullptr;
  }
  const bool missing =
      std::strstr(op.runtime.api->GetErrorMessage(status), "No attribute") != nullptr;
  op.runtime.api->ReleaseStatus(status);
  if (missing) {
    *value = attribute.default_value;
    return nullptr;
  }
  return fail(op.runtime.api,
              Status::error("[%s] attribute %s of node \"%s\" should be a float. Received "
                            "another type. Write it as a float attribute.",
                            op.info->name, attribute.name, NodeName(op, node).text));
}

/// All attributes of the node, checked.
inline OrtStatus* read_attributes(const OpConfig& op, const OrtKernelInfo* node, double* values) {
  for (std::size_t i = 0; i < op.info->attribute_count; ++i) {
    MYOPS_RETURN_IF_ERROR(read_attribute(op, node, i, &values[i]));
  }
  const Status valid = check_attributes(*op.info, values);
  if (valid.ok()) return nullptr;
  return fail(op.runtime.api,
              Status::error("%s (Node \"%s\".)", valid.message(), NodeName(op, node).text));
}

struct ShapeRelease {
  const OrtApi* api;
  OrtTensorTypeAndShapeInfo* info = nullptr;
  ~ShapeRelease() {
    if (info != nullptr) api->ReleaseTensorTypeAndShapeInfo(info);
  }
};

/// The dims of a value, valid as long as both.
struct Shape {
  const std::int64_t* dims = nullptr;
  std::size_t rank = 0;
  std::int64_t count = 1;        // of elements
  std::int64_t copy[most_dims];  // where the runtime has no dims to refer to

  bool operator==(const Shape& other) const noexcept {
    return rank == other.rank &&
           (rank == 0 || std::memcmp(dims, other.dims, rank * sizeof *dims) == 0);
  }
};

inline OrtStatus* read_shape(const Runtime& runtime, const OrtValue* value, Shape* shape) {
  const OrtApi* api = runtime.api;
  if (runtime.shape_of != nullptr) {
    ONNXTensorElementDataType type;
    MYOPS_RETURN_IF_ERROR(runtime.shape_of(value, &type, &shape->dims, &shape->rank));
  } else {
    ShapeRelease info{api};
    MYOPS_RETURN_IF_ERROR(api->GetTensorTypeAndShape(value, &info.info));
    MYOPS_RETURN_IF_ERROR(api->GetDimensionsCount(info.info, &shape->rank));
    if (shape->rank <= most_dims) {
      MYOPS_RETURN_IF_ERROR(api->GetDimensions(info.info, shape->copy, shape->rank));
    }
    shape->dims = shape->copy;
  }
  if (shape->rank > most_dims) {
    return fail(api, Status::error("[myops] a tensor should have at most %zu dimensions. Received "
                                   "%zu. Reshape it first.",
                                   most_dims, shape->rank));
  }
  for (std::size_t i = 0; i < shape->rank; ++i) shape->count *= shape->dims[i];
  return nullptr;
}

/// "[2, 3]", cut where it does not fit.
struct ShapeText {
  char text[96];

  explicit ShapeText(const Shape& shape) {
    std::size_t used = 0;
    text[used++] = '[';
    for (std::size_t i = 0; i < shape.rank && used + 24 < sizeof text; ++i) {
      used += static_cast<std::size_t>(std::snprintf(text + used, sizeof text - used, "%s%lld",
                                                     i == 0 ? "" : ", ",
                                                     static_cast<long long>(shape.dims[i])));
    }
    std::snprintf(text + used, sizeof text - used, "]");
  }
};

/// Where the value's elements are. The C API has no accessor for reading only.
inline OrtStatus* read_data(const OrtApi* api, const OrtValue* value, void** data) {
  return api->GetTensorMutableData(const_cast<OrtValue*>(value), data);
}

inline std::int64_t most_tasks_of(const Runtime& runtime) {
  return runtime.api_version >= parallel_for_since ? most_tasks : 1;
}

#ifdef __SANITIZE_THREAD__
// ONNX Runtime starts the tasks after the call and returns after the last of them. It is not
// compiled with ThreadSanitizer, which would otherwise see no order there at all.
struct OrderedTasks {
  void (*run)(void* work, std::size_t task);
  void* work;
};

inline void run_ordered(void* data, std::size_t task) {
  __tsan_acquire(data);
  const auto* tasks = static_cast<const OrderedTasks*>(data);
  tasks->run(tasks->work, task);
  __tsan_release(data);
}

inline OrtStatus* run_parallel(const OrtApi* api, OrtKernelContext* context, std::size_t count,
                               void (*run)(void* work, std::size_t task), void* work) {
  OrderedTasks tasks{run, work};
  __tsan_release(&tasks);
  OrtStatus* status = api->KernelContext_ParallelFor(context, run_ordered, count, 0, &tasks);
  __tsan_acquire(&tasks);
  return status;
}
#else
inline OrtStatus* run_parallel(const OrtApi* api, OrtKernelContext* context, std::size_t count,
                               void (*run)(void* work, std::size_t task), void* work) {
  return api->KernelContext_ParallelFor(context, run, count, 0, work);
}
#endif

/// `run(work, task)` for every task: one on the calling thread, more on the session's pool.
inline OrtStatus* run_tasks(const OrtApi* api, OrtKernelContext* context, std::int64_t tasks,
                            void (*run)(void* work, std::size_t task), void* work) {
  if (tasks > 1) return run_parallel(api, context, static_cast<std::size_t>(tasks), run, work);
  if (tasks == 1) run(work, 0);
  return nullptr;
}

}  // namespace myops::ort
