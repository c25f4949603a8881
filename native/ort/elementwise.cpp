// SPDX-License-Identifier: Apache-2.0
// The elementwise operators, one output and inputs of one shape or broadcast to the first one's.
#include <memory>
#include <new>

#include "host.hpp"
#include "myops/cuda.hpp"
#include "watch.hpp"

namespace myops::ort {
namespace {

struct Kernel {
  Runtime runtime;
  const OpInfo* info;
  DType dtype;
  NodeName node;
  KernelFn function;
  CudaKernelFn cuda_function;  // where the node is the CUDA provider's
  std::size_t input_count;
  bool broadcasts;
  std::int64_t element_bytes;
  double attributes[max_attributes];
};

OrtStatus* create_kernel(const OrtCustomOp* base, const OrtApi*, const OrtKernelInfo* node,
                         void** result) noexcept {
  const OpConfig& op = self(base);
  std::unique_ptr<Kernel> kernel(new (std::nothrow) Kernel{});
  if (kernel == nullptr) return op.runtime.api->CreateStatus(ORT_FAIL, "[myops] out of memory.");
  kernel->runtime = op.runtime;
  kernel->info = op.info;
  kernel->dtype = op.dtype;
  if (checks_finite()) kernel->node = NodeName(op, node);
  kernel->function = cpu_kernel(*op.info, Pass::forward, op.dtype);
  if (op.provider == Provider::cuda) {
    kernel->cuda_function = cuda_forward_kernel(*op.info, op.dtype);
  }
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

void watch_result(const Work& work) {
  const Kernel& kernel = *work.kernel;
  watch(kernel.info->name, kernel.node, kernel.info->output_names[0], work.output, kernel.dtype,
        work.count, [&](std::int64_t index, ValuesText& values) {
          for (std::size_t i = 0; i < kernel.input_count; ++i) {
            const bool direct = work.broadcasts[i].is_direct();
            const std::int64_t place = direct ? index : work.broadcasts[i].offset(index);
            values.add(kernel.info->input_names[i],
                       element_value(work.inputs[i], kernel.dtype, place));
          }
        });
}

OrtStatus* run_on_cpu(const Kernel& kernel, Work& work, OrtKernelContext* context) {
  bool aliases = false;
  for (std::size_t i = 0; i < kernel.input_count; ++i) {
    aliases = aliases || work.inputs[i] == work.output;
  }
  work.placement = placement_for(work.count * kernel.element_bytes, aliases);
  const TaskPlan plan = plan_tasks(work.count, most_tasks_of(kernel.runtime));
  work.grain = plan.grain;
  OrtStatus* error = run_tasks(kernel.runtime.api, context, plan.tasks, run_task, &work);
  if (error == nullptr && checks_finite()) watch_result(work);
  return error;
}

/// On the stream of the session, without waiting.
OrtStatus* launch(const Kernel& kernel, const Work& work, OrtKernelContext* context) {
  const OrtApi* api = kernel.runtime.api;
  void* stream = nullptr;
  MYOPS_RETURN_IF_ERROR(api->KernelContext_GetGPUComputeStream(context, &stream));
  void* const outputs[] = {work.output};
  const Status status = kernel.cuda_function({work.inputs, outputs, work.count, kernel.attributes,
                                              stream, work.direct ? nullptr : work.broadcasts});
  return status.ok() ? nullptr : fail(api, status);
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
  return kernel.cuda_function != nullptr ? launch(kernel, work, context)
                                         : run_on_cpu(kernel, work, context);
}

}  // namespace

void init_elementwise_op(CustomOp& op, const OpConfig& config) noexcept {
  init_custom_op(op, config);
  op.CreateKernelV2 = create_kernel;
  op.KernelComputeV2 = compute;
  op.KernelDestroy = [](void* state) noexcept { delete static_cast<Kernel*>(state); };
}

}  // namespace myops::ort
