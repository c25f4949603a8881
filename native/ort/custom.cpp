// SPDX-License-Identifier: Apache-2.0
// Operators that are a function over whole tensors, on the CPU. float16 and bfloat16 are computed
// in float32 and rounded once.
#include "myops/custom.hpp"

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "cpu/storage.hpp"
#include "host.hpp"
#include MYOPS_OP_LIST

namespace myops::ort {
namespace {

using KnownShapesFn = Status (*)(const Sizes<std::int64_t>*, const double*, Sizes<std::int64_t>*);
using DimShapesFn = Status (*)(const Sizes<Dim>*, const double*, Sizes<Dim>*);

#define MYOPS_SHAPES(Name, torch_name) Name::shapes<std::int64_t>,
constexpr KnownShapesFn known_shapes[] = {MYOPS_CUSTOM_OPS(MYOPS_SHAPES)};
#undef MYOPS_SHAPES
#define MYOPS_SHAPES(Name, torch_name) Name::shapes<Dim>,
constexpr DimShapesFn dim_shapes[] = {MYOPS_CUSTOM_OPS(MYOPS_SHAPES)};
#undef MYOPS_SHAPES

struct Kernel {
  Runtime runtime;
  const OpInfo* info;
  DType dtype;
  double attributes[max_attributes];
};

OrtStatus* create_kernel(const OrtCustomOp* base, const OrtApi*, const OrtKernelInfo* node,
                         void** result) noexcept {
  const OpConfig& op = self(base);
  std::unique_ptr<Kernel> kernel(new (std::nothrow) Kernel{op.runtime, op.info, op.dtype, {}});
  if (kernel == nullptr) return op.runtime.api->CreateStatus(ORT_FAIL, "[myops] out of memory.");
  MYOPS_RETURN_IF_ERROR(read_attributes(op, node, kernel->attributes));
  *result = kernel.release();
  return nullptr;
}

/// A contiguous tensor in the type the function computes in.
struct Buffer {
  Sizes<std::int64_t> sizes;
  Sizes<std::int64_t> strides;
  std::vector<float> wide;  // of a half type
  TensorView view;

  void set(DType dtype, void* data) {
    strides.assign(sizes.size(), 1);
    for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
    const bool half = element_size(dtype) == 2;
    view = {half ? DType::f32 : dtype, data, sizes.size(), sizes.data(), strides.data()};
    if (half) {
      wide.resize(static_cast<std::size_t>(view.count()));
      view.data = wide.data();
    }
  }
};

void widen(DType dtype, const void* from, Buffer& to) {
  const int count = static_cast<int>(to.wide.size());
  if (dtype == DType::f16) load_block(static_cast<const Half*>(from), to.wide.data(), count);
  if (dtype == DType::bf16) load_block(static_cast<const BFloat16*>(from), to.wide.data(), count);
}

void narrow(DType dtype, const Buffer& from, void* to) {
  const int count = static_cast<int>(from.wide.size());
  if (dtype == DType::f16) store_block(from.wide.data(), static_cast<Half*>(to), count);
  if (dtype == DType::bf16) store_block(from.wide.data(), static_cast<BFloat16*>(to), count);
}

OrtStatus* run(const Kernel& kernel, OrtKernelContext* context) {
  const OrtApi* api = kernel.runtime.api;
  const OpInfo& info = *kernel.info;
  std::vector<Buffer> inputs(info.input_count);
  std::vector<Sizes<std::int64_t>> input_sizes;
  for (std::size_t i = 0; i < info.input_count; ++i) {
    const OrtValue* value = nullptr;
    void* data = nullptr;
    Shape shape;
    MYOPS_RETURN_IF_ERROR(api->KernelContext_GetInput(context, i, &value));
    MYOPS_RETURN_IF_ERROR(read_data(api, value, &data));
    MYOPS_RETURN_IF_ERROR(read_shape(kernel.runtime, value, &shape));
    inputs[i].sizes.assign(shape.dims, shape.dims + shape.rank);
    inputs[i].set(kernel.dtype, data);
    widen(kernel.dtype, data, inputs[i]);
    input_sizes.push_back(inputs[i].sizes);
  }
  std::vector<Sizes<std::int64_t>> output_sizes(info.output_count);
  const Status fits =
      known_shapes[info.index](input_sizes.data(), kernel.attributes, output_sizes.data());
  if (!fits.ok()) return fail(api, fits);
  std::vector<Buffer> outputs(info.output_count);
  std::vector<void*> targets(info.output_count);
  std::vector<TensorView> in;
  std::vector<TensorView> out;
  for (std::size_t i = 0; i < info.output_count; ++i) {
    OrtValue* value = nullptr;
    outputs[i].sizes = output_sizes[i];
    MYOPS_RETURN_IF_ERROR(api->KernelContext_GetOutput(context, i, outputs[i].sizes.data(),
                                                       outputs[i].sizes.size(), &value));
    MYOPS_RETURN_IF_ERROR(api->GetTensorMutableData(value, &targets[i]));
    outputs[i].set(kernel.dtype, targets[i]);
    out.push_back(outputs[i].view);
  }
  for (const Buffer& input : inputs) in.push_back(input.view);
  const Status done = custom_forward(info)(in.data(), out.data(), kernel.attributes);
  if (!done.ok()) return fail(api, done);
  for (std::size_t i = 0; i < info.output_count; ++i) narrow(kernel.dtype, outputs[i], targets[i]);
  return nullptr;
}

OrtStatus* compute(void* state, OrtKernelContext* context) noexcept {
  const Kernel& kernel = *static_cast<const Kernel*>(state);
  try {
    return run(kernel, context);
  } catch (const std::exception& error) {
    return fail(
        kernel.runtime.api,
        Status::error("[%s] the function should return its errors. Received: %s. Look at the "
                      "inputs' sizes.",
                      kernel.info->name, error.what()));
  }
}

/// The input's sizes; false where not even their number is known.
OrtStatus* read_dims(const OrtApi* api, OrtShapeInferContext* context, std::size_t input,
                     Sizes<Dim>& dims, bool& known) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  MYOPS_RETURN_IF_ERROR(api->ShapeInferContext_GetInputTypeShape(context, input, &info));
  std::size_t rank = 0;
  MYOPS_RETURN_IF_ERROR(api->GetDimensionsCount(info, &rank));
  known = rank > 0;  // 0 is also the word for an unknown rank
  std::vector<std::int64_t> values(rank);
  std::vector<const char*> names(rank);
  MYOPS_RETURN_IF_ERROR(api->GetDimensions(info, values.data(), rank));
  MYOPS_RETURN_IF_ERROR(api->GetSymbolicDimensions(info, names.data(), rank));
  for (std::size_t i = 0; i < rank; ++i) {
    Dim dim(values[i] < 0 ? -1 : values[i]);
    if (!dim.known() && names[i][0] != '\0') dim.name = names[i];
    dims.push_back(dim);
  }
  return nullptr;
}

OrtStatus* write_dims(const Runtime& runtime, OrtShapeInferContext* context, std::size_t output,
                      const Sizes<Dim>& dims, ONNXTensorElementDataType type) {
  static std::atomic<unsigned> last_number{0};
  const OrtApi* api = runtime.api;
  ShapeRelease info{api};
  std::vector<std::int64_t> values;
  std::vector<std::string> names;
  std::vector<const char*> texts;
  for (const Dim& dim : dims) {
    values.push_back(dim.known() ? dim.value : -1);
    // A name of its own for each unknown size: equal names promise equal sizes.
    names.push_back(dim.known() ? ""
                    : dim.name != nullptr
                        ? dim.name
                        : MYOPS_NAMESPACE "_size_" + std::to_string(++last_number));
  }
  for (const std::string& name : names) texts.push_back(name.c_str());
  MYOPS_RETURN_IF_ERROR(api->CreateTensorTypeAndShapeInfo(&info.info));
  MYOPS_RETURN_IF_ERROR(api->SetTensorElementType(info.info, type));
  MYOPS_RETURN_IF_ERROR(api->SetDimensions(info.info, values.data(), values.size()));
  MYOPS_RETURN_IF_ERROR(api->SetSymbolicDimensions(info.info, texts.data(), texts.size()));
  return api->ShapeInferContext_SetOutputTypeShape(context, output, info.info);
}

/// Attribute values while a model loads: the defaults stand for what the node does not have.
OrtStatus* read_values(const OpConfig& op, const OrtShapeInferContext* context, double* values) {
  const OrtApi* api = op.runtime.api;
  for (std::size_t i = 0; i < op.info->attribute_count; ++i) {
    values[i] = op.info->attributes[i].default_value;
    const OrtOpAttr* attribute = nullptr;
    OrtStatus* status =
        api->ShapeInferContext_GetAttribute(context, op.info->attributes[i].name, &attribute);
    if (status != nullptr || attribute == nullptr) {
      api->ReleaseStatus(status);
      continue;
    }
    float value = 0;
    std::size_t size = 0;
    status = api->ReadOpAttr(attribute, ORT_OP_ATTR_FLOAT, &value, sizeof value, &size);
    if (status == nullptr) values[i] = value;
    api->ReleaseStatus(status);  // the kernel's creation says what is wrong
  }
  return nullptr;
}

OrtStatus* infer(const OpConfig& op, OrtShapeInferContext* context) {
  const OrtApi* api = op.runtime.api;
  const OpInfo& info = *op.info;
  std::vector<Sizes<Dim>> inputs(info.input_count);
  for (std::size_t i = 0; i < info.input_count; ++i) {
    bool known = false;
    MYOPS_RETURN_IF_ERROR(read_dims(api, context, i, inputs[i], known));
    if (!known) return nullptr;
  }
  double values[max_attributes];
  MYOPS_RETURN_IF_ERROR(read_values(op, context, values));
  std::vector<Sizes<Dim>> outputs(info.output_count);
  const Status fits = dim_shapes[info.index](inputs.data(), values, outputs.data());
  if (!fits.ok()) return fail(api, fits);
  // ORT asks the first registered dtype's operator for all of them: the type is the input's.
  OrtTensorTypeAndShapeInfo* first = nullptr;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  MYOPS_RETURN_IF_ERROR(api->ShapeInferContext_GetInputTypeShape(context, 0, &first));
  MYOPS_RETURN_IF_ERROR(api->GetTensorElementType(first, &type));
  for (std::size_t i = 0; i < info.output_count; ++i) {
    MYOPS_RETURN_IF_ERROR(write_dims(op.runtime, context, i, outputs[i], type));
  }
  return nullptr;
}

OrtStatus* infer_shape(const OrtCustomOp* base, OrtShapeInferContext* context) noexcept {
  try {
    return infer(self(base), context);
  } catch (const std::exception& error) {
    return fail(
        self(base).runtime.api,
        Status::error("[%s] shapes should return its errors. Received: %s. Look at the model.",
                      self(base).info->name, error.what()));
  }
}

}  // namespace

// The list of operators of this plugin holds functions over whole tensors only.
void init_elementwise_op(CustomOp& op, const OpConfig& config) noexcept {
  init_custom_op(op, config);
  op.InferOutputShapeFn = infer_shape;
  op.GetMayInplace = op.GetAliasMap;  // none
  op.CreateKernelV2 = create_kernel;
  op.KernelComputeV2 = compute;
  op.KernelDestroy = [](void* state) noexcept { delete static_cast<Kernel*>(state); };
}

}  // namespace myops::ort
