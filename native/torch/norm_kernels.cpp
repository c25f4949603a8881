// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <string>

#include "myops/finite.hpp"
#include "norm.hpp"
#include "watch.hpp"

namespace myops::torch_glue {
namespace {

// Parts of the rows whose shares of the weight's gradient are summed apart. Their number depends
// on the shape alone, so that the gradient does not depend on the number of threads.
constexpr std::int64_t most_parts = 16;

void check_like(const OpInfo& op, const char* name, const at::Tensor& tensor, const at::Tensor& x) {
  if (!matches(tensor, x)) check_matches(op, name, tensor, "x", x, /*broadcasts=*/false);
}

void check_norm(const NormArguments& call) {
  const auto& [op, x, residual, weight, attributes] = call;
  check_tensor(op, "x", x);
  check_tensor(op, "weight", weight);
  TORCH_CHECK_VALUE(x.dim() > 0, "[", op.torch_name,
                    "] x should have at least one dim. Received a scalar. Reshape it first.");
  TORCH_CHECK_VALUE(weight.dim() == 1 && weight.sym_size(0) == x.sym_size(-1), "[", op.torch_name,
                    "] weight should have the size of the last dim of x, [", x.sym_size(-1),
                    "]. Received ", weight.sym_sizes(), ". Reshape x or weight.");
  TORCH_CHECK_TYPE(weight.scalar_type() == x.scalar_type(), "[", op.torch_name,
                   "] weight should have the dtype of x, ", dtype_text(x), ". Received ",
                   dtype_text(weight), ". Convert one of them.");
  TORCH_CHECK_VALUE(weight.device() == x.device(), "[", op.torch_name,
                    "] weight should be on the device of x, ", x.device(), ". Received ",
                    weight.device(), ". Move one of them with .to().");
  check_call(op, attributes);
  if (call.adds()) check_like(op, "residual", residual, x);
}

/// Checks all outputs, then gives each of them the shape of x.
void prepare_outs(const NormArguments& call, const NormOuts& outs) {
  check_out(call.op, call.adds() ? "out_y" : "out", outs.y, "x", call.x);
  if (call.adds()) check_out(call.op, "out_sum", outs.sum, "x", call.x);
  at::native::resize_output(outs.y, call.x.sizes());
  if (call.adds()) at::native::resize_output(outs.sum, call.x.sizes());
}

/// Whether memory is one row after the other, in whatever order of the outer dims.
bool has_rows(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && (tensor.stride(-1) == 1 || tensor.size(-1) == 1);
}

at::Tensor with_rows(const at::Tensor& tensor) {
  return has_rows(tensor) ? tensor : tensor.contiguous();
}

/// `tensor` with its elements in the order in which `like`'s lie in memory.
at::Tensor in_order_of(const at::Tensor& like, const at::Tensor& tensor) {
  if (tensor.strides() == like.strides()) return tensor;
  at::Tensor copy = at::empty_like(like);
  copy.copy_(tensor);
  return copy;
}

DType storage_of(const at::Tensor& x) { return *dtype_of(x); }

const char* row(const at::Tensor& tensor, std::int64_t index) {
  return static_cast<const char*>(tensor.const_data_ptr()) +
         index * tensor.size(-1) * tensor.element_size();
}

char* mutable_row(const at::Tensor& tensor, std::int64_t index) {
  return static_cast<char*>(tensor.mutable_data_ptr()) +
         index * tensor.size(-1) * tensor.element_size();
}

/// All tensors have rows in the same order.
void run_forward(const NormArguments& call, const NormOuts& outs) {
  const at::Tensor& x = call.x;
  if (x.numel() == 0) return;
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = x.numel() / width;
  const NormKernels kernels = norm_kernels(call.op, storage_of(x));
  NormForward whole{};
  whole.weight = call.weight.const_data_ptr();
  whole.width = width;
  std::copy_n(call.attributes, call.op.attribute_count, whole.attributes);
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    NormForward part = whole;
    part.x = row(x, begin);
    part.y = mutable_row(outs.y, begin);
    if (call.adds()) {
      part.residual = row(call.residual, begin);
      part.sum = mutable_row(outs.sum, begin);
    }
    part.rows = end - begin;
    kernels.forward(part);
  };
  const TaskPlan plan = plan_rows(rows, width, at::get_num_threads());
  if (plan.tasks == 1) {
    range(0, rows);
  } else {
    at::parallel_for(0, rows, plan.grain, range);
  }
  if (!checks_finite()) return;
  NamedTensors inputs = {{"x", x}, {"weight", call.weight}};
  NamedTensors outputs = {{"y", outs.y}};
  if (call.adds()) {
    inputs.insert(inputs.begin() + 1, {"residual", call.residual});
    outputs.insert(outputs.begin(), {"sum", outs.sum});
  }
  watch(call.op.torch_name, inputs, outputs);
}

/// Writes the results computed into `made` to where the caller wants them.
void deliver(const at::Tensor& made, const at::Tensor& out) {
  if (!made.is_same(out)) out.copy_(made);
}

/// `out` itself where rows can be written into it at once, else new memory.
at::Tensor target(const at::Tensor& out, const at::Tensor& rows) {
  return out.strides() == rows.strides() ? out : at::empty_like(rows);
}

/// A checked call into outputs of the shape of x.
void compute(const NormArguments& call, const NormOuts& outs) {
  const at::Tensor rows = with_rows(call.x);
  const at::Tensor weight = call.weight.contiguous();
  NormOuts made{target(outs.y, rows), {}};
  at::Tensor residual;
  if (call.adds()) {
    made.sum = target(outs.sum, rows);
    residual = in_order_of(rows, call.residual);
  }
  run_forward({call.op, rows, residual, weight, call.attributes}, made);
  deliver(made.y, outs.y);
  if (call.adds()) deliver(made.sum, outs.sum);
}

NormOuts new_outs(const NormArguments& call) {
  return {at::empty_like(call.x), call.adds() ? at::empty_like(call.x) : at::Tensor()};
}

}  // namespace

void check_overlap(const NormOuts& outs, const NormArguments& call) {
  for (const at::Tensor* out : {&outs.y, &outs.sum}) {
    if (!out->defined()) continue;
    at::assert_no_internal_overlap(*out);
    at::assert_no_partial_overlap(*out, call.x);
    if (call.adds()) at::assert_no_partial_overlap(*out, call.residual);
    at::assert_no_overlap(*out, call.weight);
  }
  if (call.adds()) at::assert_no_overlap(outs.y, outs.sum);
}

namespace norm_cpu {

NormOuts forward(const NormArguments& call) {
  check_norm(call);
  NormOuts outs = new_outs(call);
  compute(call, outs);
  return outs;
}

void forward_out(const NormArguments& call, const NormOuts& outs) {
  check_norm(call);
  prepare_outs(call, outs);
  check_overlap(outs, call);
  compute(call, outs);
}

TensorPair backward(const at::Tensor& grad, const NormArguments& call) {
  const auto& [op, x, residual, weight, attributes] = call;
  check_norm(call);
  check_like(op, "grad_out", grad, x);
  const at::Tensor x_grad = at::empty_like(x);
  const at::Tensor weight_grad = at::empty_like(weight);
  if (x.numel() == 0) {
    weight_grad.zero_();
    return {x_grad, weight_grad};
  }
  const at::Tensor rows = with_rows(x);
  const at::Tensor grads = in_order_of(rows, grad);
  const at::Tensor weights = weight.contiguous();
  const at::Tensor made = target(x_grad, rows);
  const std::int64_t width = x.size(-1);
  const std::int64_t row_count = x.numel() / width;
  const TaskPlan plan = plan_rows(row_count, width, most_parts);
  const auto compute_type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor parts = at::zeros({plan.tasks, width}, x.options().dtype(compute_type));
  const NormKernels kernels = norm_kernels(op, storage_of(x));
  NormBackward whole{};
  whole.weight = weights.const_data_ptr();
  whole.width = width;
  std::copy_n(attributes, op.attribute_count, whole.attributes);
  at::parallel_for(0, plan.tasks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      const std::int64_t begin = part * plan.grain;
      NormBackward some = whole;
      some.grad = row(grads, begin);
      some.x = row(rows, begin);
      some.x_grad = mutable_row(made, begin);
      some.weight_grad = mutable_row(parts, part);
      some.rows = std::min(begin + plan.grain, row_count) - begin;
      kernels.backward(some);
    }
  });
  deliver(made, x_grad);
  weight_grad.copy_(parts.size(0) == 1 ? parts[0] : at::sum(parts, 0));
  if (checks_finite()) {
    watch(std::string(op.torch_name) + "_backward",
          {{"grad_out", grads}, {"x", rows}, {"weight", weights}},
          {{"grad_x", made}, {"grad_weight", weight_grad}});
  }
  return {x_grad, weight_grad};
}

}  // namespace norm_cpu

namespace norm_meta {

NormOuts forward(const NormArguments& call) {
  check_norm(call);
  return new_outs(call);
}

void forward_out(const NormArguments& call, const NormOuts& outs) {
  check_norm(call);
  prepare_outs(call, outs);
}

TensorPair backward(const at::Tensor& grad, const NormArguments& call) {
  check_norm(call);
  check_like(call.op, "grad_out", grad, call.x);
  return {at::empty_like(call.x), at::empty_like(call.weight)};
}

}  // namespace norm_meta
}  // namespace myops::torch_glue
