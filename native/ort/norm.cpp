// SPDX-License-Identifier: Apache-2.0
// The normalizations. Inputs are rows, one or two tensors of them, and the weight.
#include "myops/norm.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>

#include "host.hpp"
#include "myops/cuda.hpp"
#include "watch.hpp"

namespace myops::ort {
namespace {

struct Kernel {
  const OpInfo* info;
  DType dtype;
  NodeName node;
  Runtime runtime;
  NormKernels functions;
  CudaNormKernels cuda_functions;  // where the node is the CUDA provider's
  std::int64_t element_bytes;
  double attributes[most_norm_attributes];
};

OrtStatus* create_kernel(const OrtCustomOp* base, const OrtApi*, const OrtKernelInfo* node,
                         void** result) noexcept {
  const OpConfig& op = self(base);
  std::unique_ptr<Kernel> kernel(new (std::nothrow) Kernel{});
  if (kernel == nullptr) return op.runtime.api->CreateStatus(ORT_FAIL, "[myops] out of memory.");
  kernel->info = op.info;
  kernel->dtype = op.dtype;
  if (checks_finite()) kernel->node = NodeName(op, node);
  kernel->runtime = op.runtime;
  kernel->functions = norm_kernels(*op.info, op.dtype);
  if (op.provider == Provider::cuda) kernel->cuda_functions = cuda_norm_kernels(*op.info, op.dtype);
  kernel->element_bytes = static_cast<std::int64_t>(element_size(op.dtype));
  MYOPS_RETURN_IF_ERROR(read_attributes(op, node, kernel->attributes));
  *result = kernel.release();
  return nullptr;
}

/// A call over all rows, of which each task takes `grain`.
struct Work {
  const Kernel* kernel;
  NormForward call;
  std::int64_t grain;
};

template <class Pointer>
Pointer at_row(Pointer start, std::int64_t offset) {
  using Bytes =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char*, char*>;
  return start == nullptr ? nullptr : static_cast<Bytes>(start) + offset;
}

void run_task(void* data, std::size_t task) noexcept {
  const Work& work = *static_cast<const Work*>(data);
  const std::int64_t begin = static_cast<std::int64_t>(task) * work.grain;
  const std::int64_t left = work.call.rows - begin;
  const std::int64_t offset = begin * work.call.width * work.kernel->element_bytes;
  NormForward part = work.call;
  part.x = at_row(part.x, offset);
  part.residual = at_row(part.residual, offset);
  part.y = at_row(part.y, offset);
  part.sum = at_row(part.sum, offset);
  part.rows = left < work.grain ? left : work.grain;
  work.kernel->functions.forward(part);
}

void watch_results(const Work& work) {
  const Kernel& kernel = *work.kernel;
  const NormForward& call = work.call;
  const auto values_at = [&](std::int64_t index, ValuesText& values) {
    values.add("x", element_value(call.x, kernel.dtype, index));
    if (call.residual != nullptr) {
      values.add("residual", element_value(call.residual, kernel.dtype, index));
    }
    values.add("weight", element_value(call.weight, kernel.dtype, index % call.width));
  };
  const std::int64_t count = call.rows * call.width;
  for (const void* output : {call.sum, call.y}) {
    if (output == nullptr) continue;
    watch(kernel.info->name, kernel.node, kernel.info->output_names[output == call.y ? 0 : 1],
          output, kernel.dtype, count, values_at);
  }
}

struct Input {
  void* data = nullptr;
  Shape shape;
};

OrtStatus* read_input(const Runtime& runtime, OrtKernelContext* context, std::size_t index,
                      Input& input) {
  const OrtValue* value = nullptr;
  MYOPS_RETURN_IF_ERROR(runtime.api->KernelContext_GetInput(context, index, &value));
  MYOPS_RETURN_IF_ERROR(read_shape(runtime, value, &input.shape));
  return read_data(runtime.api, value, &input.data);
}

OrtStatus* new_output(const OrtApi* api, OrtKernelContext* context, std::size_t index,
                      const Shape& like, void** data) {
  OrtValue* output = nullptr;
  MYOPS_RETURN_IF_ERROR(
      api->KernelContext_GetOutput(context, index, like.dims, like.rank, &output));
  return api->GetTensorMutableData(output, data);
}

OrtStatus* compute(void* state, OrtKernelContext* context) noexcept {
  const Kernel& kernel = *static_cast<const Kernel*>(state);
  const OrtApi* api = kernel.runtime.api;
  Input x;
  Input residual;
  Input weight;
  const bool adds = kernel.info->input_count == 3;
  MYOPS_RETURN_IF_ERROR(read_input(kernel.runtime, context, 0, x));
  if (adds) MYOPS_RETURN_IF_ERROR(read_input(kernel.runtime, context, 1, residual));
  MYOPS_RETURN_IF_ERROR(read_input(kernel.runtime, context, kernel.info->input_count - 1, weight));
  const std::int64_t width = x.shape.rank == 0 ? -1 : x.shape.dims[x.shape.rank - 1];
  if (weight.shape.rank != 1 || weight.shape.count != width) {
    return fail(api, Status::error("[%s] weight should have the size of the last dim of x. "
                                   "Received %s for x of %s. Reshape x or weight.",
                                   kernel.info->name, ShapeText(weight.shape).text,
                                   ShapeText(x.shape).text));
  }
  if (adds && !(residual.shape == x.shape)) {
    return fail(api, Status::error("[%s] residual should have the shape of x, %s. Received %s. "
                                   "Expand or reshape it first.",
                                   kernel.info->name, ShapeText(x.shape).text,
                                   ShapeText(residual.shape).text));
  }
  Work work{};
  work.kernel = &kernel;
  work.call.x = x.data;
  work.call.residual = residual.data;
  work.call.weight = weight.data;
  MYOPS_RETURN_IF_ERROR(new_output(api, context, 0, x.shape, &work.call.y));
  if (adds) MYOPS_RETURN_IF_ERROR(new_output(api, context, 1, x.shape, &work.call.sum));
  if (x.shape.count == 0) return nullptr;
  work.call.rows = x.shape.count / width;
  work.call.width = width;
  std::copy(std::begin(kernel.attributes), std::end(kernel.attributes), work.call.attributes);
  if (kernel.cuda_functions.forward != nullptr) {
    void* stream = nullptr;
    MYOPS_RETURN_IF_ERROR(api->KernelContext_GetGPUComputeStream(context, &stream));
    const Status status = kernel.cuda_functions.forward(work.call, stream);
    return status.ok() ? nullptr : fail(api, status);
  }
  const TaskPlan plan = plan_rows(work.call.rows, width, most_tasks_of(kernel.runtime));
  work.grain = plan.grain;
  OrtStatus* error = run_tasks(api, context, plan.tasks, run_task, &work);
  if (error == nullptr && checks_finite()) watch_results(work);
  return error;
}

// x -> sum, residual -> y.
constexpr int in_place_inputs[] = {0, 1};
constexpr int in_place_outputs[] = {1, 0};

}  // namespace

void init_norm_op(CustomOp& op, const OpConfig& config) noexcept {
  init_custom_op(op, config);
  op.CreateKernelV2 = create_kernel;
  op.KernelComputeV2 = compute;
  op.KernelDestroy = [](void* state) noexcept { delete static_cast<Kernel*>(state); };
  if (config.info->output_count == 1) return;  // as for elementwise operators
  op.GetMayInplace = [](int** inputs, int** outputs) noexcept -> std::size_t {
    // ORT only reads the arrays.
    *inputs = const_cast<int*>(in_place_inputs);
    *outputs = const_cast<int*>(in_place_outputs);
    return checks_finite() ? 0 : 2;  // a report shows the inputs
  };
}

}  // namespace myops::ort
