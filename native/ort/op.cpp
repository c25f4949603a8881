// SPDX-License-Identifier: Apache-2.0
#include "op.hpp"

#include <atomic>
#include <cstdio>
#include <memory>
#include <new>

#include "broadcast.hpp"
#include "host.hpp"

namespace myops::ort {
namespace {

struct Kernel {
  Runtime runtime;
  std::int64_t most_tasks;
  KernelFn function;
  std::size_t input_count;
  bool broadcasts;
  std::int64_t element_bytes;
  double attributes[max_attributes];
};

OrtStatus* create_kernel(const OrtCustomOp* base, const OrtApi*, const OrtKernelInfo* node,
                         void** result) noexcept {
  const CustomOp& op = self(base);
  std::unique_ptr<Kernel> kernel(new (std::nothrow) Kernel{});
  if (kernel == nullptr) return op.runtime.api->CreateStatus(ORT_FAIL, "[myops] out of memory.");
  kernel->runtime = op.runtime;
  kernel->most_tasks = op.runtime.api_version >= parallel_for_since ? most_tasks : 1;
  kernel->function = cpu_kernel(*op.info, Pass::forward, op.dtype);
  kernel->input_count = op.info->input_count;
  kernel->broadcasts = op.info->broadcasts;
  kernel->element_bytes = static_cast<std::int64_t>(element_size(op.dtype));
  MYOPS_RETURN_IF_ERROR(read_attributes(op, node, kernel->attributes));
  *result = kernel.release();
  return nullptr;
}

// ORT passes one size_t to the loop body: the call's data lives on the caller's stack.
struct Work {
  const Kernel* kernel;
  const void* inputs[max_inputs];
  Broadcast broadcasts[max_inputs];
  bool direct;  // no input is broadcast
  void* output;
  std::int64_t count;
  std::int64_t grain;
  Placement placement;
};

void run_range(const Work& work, std::int64_t begin, std::int64_t count,
               Placement placement) noexcept {
  const Kernel& kernel = *work.kernel;
  alignas(64) char tiles[max_inputs][tile_elements * sizeof(double)];
  const void* from[max_inputs];
  for (std::size_t i = 0; i < kernel.input_count; ++i) {
    if (work.broadcasts[i].is_direct()) {
      from[i] = static_cast<const char*>(work.inputs[i]) + begin * kernel.element_bytes;
    } else {
      spread(work.broadcasts[i], work.inputs[i], begin, count, kernel.element_bytes, tiles[i]);
      from[i] = tiles[i];
    }
  }
  void* to[] = {static_cast<char*>(work.output) + begin * kernel.element_bytes};
  kernel.function(from, to, count, kernel.attributes, placement);
}

void run_task(void* data, std::size_t task) noexcept {
  const Work& work = *static_cast<const Work*>(data);
  const std::int64_t begin = static_cast<std::int64_t>(task) * work.grain;
  const std::int64_t end = work.count - begin < work.grain ? work.count : begin + work.grain;
  if (work.direct) {
    run_range(work, begin, end - begin, work.placement);
    return;
  }
  for (std::int64_t at = begin; at < end; at += tile_elements) {
    // Tiles are shorter than what is written past the caches at a time.
    run_range(work, at, end - at < tile_elements ? end - at : tile_elements, Placement::cache);
  }
}

OrtStatus* fail_shapes(const Kernel& kernel, const ShapeText& first, const ShapeText& other) {
  if (kernel.broadcasts) {
    return fail(kernel.runtime.api,
                Status::error("[myops] an input should have one shape with the first input, or one "
                              "that can be broadcast to it: sizes equal or 1, aligned at the last "
                              "dim. Received %s for the first and %s. Reshape it first.",
                              first.text, other.text));
  }
  return fail(kernel.runtime.api,
              Status::error("[myops] the inputs of an elementwise operator should have one shape. "
                            "Received %s and %s. Expand them first.",
                            first.text, other.text));
}

OrtStatus* compute(void* state, OrtKernelContext* context) noexcept {
  const Kernel& kernel = *static_cast<const Kernel*>(state);
  const OrtApi* api = kernel.runtime.api;
  Work work;
  work.kernel = &kernel;
  work.direct = true;
  Shape shape;
  for (std::size_t i = 0; i < kernel.input_count; ++i) {
    const OrtValue* input = nullptr;
    MYOPS_RETURN_IF_ERROR(api->KernelContext_GetInput(context, i, &input));
    void* data = nullptr;
    MYOPS_RETURN_IF_ERROR(read_data(api, input, &data));
    work.inputs[i] = data;
    if (i == 0) {
      MYOPS_RETURN_IF_ERROR(read_shape(kernel.runtime, input, &shape));
      continue;
    }
    Shape other;
    MYOPS_RETURN_IF_ERROR(read_shape(kernel.runtime, input, &other));
    if (other == shape) continue;
    const bool fits = kernel.broadcasts && plan_broadcast(shape.dims, shape.rank, other.dims,
                                                          other.rank, &work.broadcasts[i]);
    if (!fits) return fail_shapes(kernel, ShapeText(shape), ShapeText(other));
    work.direct = work.direct && work.broadcasts[i].is_direct();
  }
  work.count = shape.count;
  OrtValue* output = nullptr;
  MYOPS_RETURN_IF_ERROR(api->KernelContext_GetOutput(context, 0, shape.dims, shape.rank, &output));
  MYOPS_RETURN_IF_ERROR(api->GetTensorMutableData(output, &work.output));
  bool aliases = false;
  for (std::size_t i = 0; i < kernel.input_count; ++i) {
    aliases = aliases || work.inputs[i] == work.output;
  }
  work.placement = placement_for(work.count * kernel.element_bytes, aliases);
  const TaskPlan plan = plan_tasks(work.count, kernel.most_tasks);
  if (plan.tasks == 0) return nullptr;
  work.grain = plan.grain;
  if (plan.tasks == 1) {
    run_task(&work, 0);
    return nullptr;
  }
  return api->KernelContext_ParallelFor(context, run_task, static_cast<std::size_t>(plan.tasks), 0,
                                        &work);
}

ONNXTensorElementDataType onnx_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    case DType::f64: return ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE;
    case DType::f16: return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    case DType::bf16: return ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

/// Gives dims that have neither value nor name a name of their own. ORT would write them as the
/// value -1 into the output, which contradicts, and then replaces, what the model declares there.
/// The names are unique because equal names promise equal sizes.
OrtStatus* name_unknown_dims(const OrtApi* api, OrtTensorTypeAndShapeInfo* info,
                             std::size_t rank) noexcept {
  if (rank > most_dims) return nullptr;
  static std::atomic<unsigned> last_number{0};
  std::int64_t values[most_dims];
  const char* names[most_dims];
  char buffers[most_dims][32];
  MYOPS_RETURN_IF_ERROR(api->GetDimensions(info, values, rank));
  MYOPS_RETURN_IF_ERROR(api->GetSymbolicDimensions(info, names, rank));
  bool changed = false;
  for (std::size_t i = 0; i < rank; ++i) {
    if (values[i] != -1 || names[i][0] != '\0') continue;
    std::snprintf(buffers[i], sizeof buffers[i], "myops_dim_%u", ++last_number);
    names[i] = buffers[i];
    changed = true;
  }
  return changed ? api->SetSymbolicDimensions(info, names, rank) : nullptr;
}

/// All outputs have the shape of the first input.
OrtStatus* infer_shape(const OrtCustomOp* base, OrtShapeInferContext* context) noexcept {
  const OrtApi* api = self(base).runtime.api;
  // Passing the input's own record through keeps symbolic and unknown dims, and the dtype, which
  // matters because ORT asks the first registered dtype's op for all of them.
  OrtTensorTypeAndShapeInfo* info = nullptr;
  MYOPS_RETURN_IF_ERROR(api->ShapeInferContext_GetInputTypeShape(context, 0, &info));
  std::size_t rank = 0;
  MYOPS_RETURN_IF_ERROR(api->GetDimensionsCount(info, &rank));
  // Rank 0 is also ORT's word for an unknown rank: declaring a scalar would break the consumers.
  if (rank == 0) return nullptr;
  MYOPS_RETURN_IF_ERROR(name_unknown_dims(api, info, rank));
  for (std::size_t i = 0; i < self(base).info->output_count; ++i) {
    MYOPS_RETURN_IF_ERROR(api->ShapeInferContext_SetOutputTypeShape(context, i, info));
  }
  return nullptr;
}

constexpr int in_place_inputs[] = {0};
constexpr int in_place_outputs[] = {0};

}  // namespace

void init_custom_op(CustomOp& op, const Runtime& runtime, const OpInfo& info,
                    DType dtype) noexcept {
  // Callbacks that are not set stay null: the runtime treats those as absent.
  op = CustomOp{};
  op.runtime = runtime;
  op.info = &info;
  op.dtype = dtype;
  op.version = static_cast<std::uint32_t>(runtime.api_version);
  op.GetName = [](const OrtCustomOp* base) noexcept { return self(base).info->name; };
  op.GetExecutionProviderType = [](const OrtCustomOp*) noexcept -> const char* {
    return "CPUExecutionProvider";
  };
  op.GetInputTypeCount = [](const OrtCustomOp* base) noexcept {
    return self(base).info->input_count;
  };
  op.GetInputType = [](const OrtCustomOp* base, std::size_t) noexcept {
    return onnx_type(self(base).dtype);
  };
  op.GetInputCharacteristic = [](const OrtCustomOp*, std::size_t) noexcept {
    return INPUT_OUTPUT_REQUIRED;
  };
  op.GetInputMemoryType = [](const OrtCustomOp*, std::size_t) noexcept {
    return OrtMemTypeDefault;
  };
  op.GetOutputTypeCount = [](const OrtCustomOp* base) noexcept {
    return self(base).info->output_count;
  };
  op.GetOutputType = op.GetInputType;
  op.GetOutputCharacteristic = op.GetInputCharacteristic;
  op.GetVariadicInputMinArity = [](const OrtCustomOp*) noexcept { return 1; };
  op.GetVariadicInputHomogeneity = [](const OrtCustomOp*) noexcept { return 1; };
  op.GetVariadicOutputMinArity = op.GetVariadicInputMinArity;
  op.GetVariadicOutputHomogeneity = op.GetVariadicInputHomogeneity;
  op.CreateKernelV2 = create_kernel;
  op.KernelComputeV2 = compute;
  op.KernelDestroy = [](void* state) noexcept { delete static_cast<Kernel*>(state); };
  op.InferOutputShapeFn = infer_shape;
  op.GetStartVersion = [](const OrtCustomOp*) noexcept { return 1; };
  op.GetEndVersion = [](const OrtCustomOp*) noexcept { return 1; };
  op.GetMayInplace = [](int** inputs, int** outputs) noexcept -> std::size_t {
    // ORT only reads the arrays.
    *inputs = const_cast<int*>(in_place_inputs);
    *outputs = const_cast<int*>(in_place_outputs);
    return 1;
  };
  op.ReleaseMayInplace = [](int*, int*) noexcept {};
  op.GetAliasMap = [](int** inputs, int** outputs) noexcept -> std::size_t {
    *inputs = nullptr;
    *outputs = nullptr;
    return 0;
  };
  op.ReleaseAliasMap = [](int*, int*) noexcept {};
}

}  // namespace myops::ort
