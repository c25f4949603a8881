// SPDX-License-Identifier: Apache-2.0
#include "op.hpp"

#include <atomic>
#include <cstdio>

#include "host.hpp"
#include "myops/finite.hpp"

namespace myops::ort {
namespace {

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
/// The names are unique, among plugins, too, because equal names promise equal sizes.
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
    std::snprintf(buffers[i], sizeof buffers[i], MYOPS_NAMESPACE "_dim_%u", ++last_number);
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

void init_custom_op(CustomOp& op, const OpConfig& config) noexcept {
  // Callbacks that are not set stay null: the runtime treats those as absent.
  op = CustomOp{};
  op.config = config;
  op.version = static_cast<std::uint32_t>(config.runtime.api_version);
  op.GetName = [](const OrtCustomOp* base) noexcept { return self(base).info->name; };
  op.GetExecutionProviderType = [](const OrtCustomOp* base) noexcept {
    return self(base).provider == Provider::cuda ? "CUDAExecutionProvider" : "CPUExecutionProvider";
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
  op.InferOutputShapeFn = infer_shape;
  op.GetStartVersion = [](const OrtCustomOp*) noexcept { return 1; };
  op.GetEndVersion = [](const OrtCustomOp*) noexcept { return 1; };
  op.GetMayInplace = [](int** inputs, int** outputs) noexcept -> std::size_t {
    // ORT only reads the arrays.
    *inputs = const_cast<int*>(in_place_inputs);
    *outputs = const_cast<int*>(in_place_outputs);
    return checks_finite() ? 0 : 1;  // a report shows the inputs
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
