// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <initializer_list>

#include "myops/finite.hpp"
#include "norm.hpp"
#include "watch.hpp"

namespace myops::torch_glue {
namespace {

// Parts of the rows whose shares of the weight's gradient are summed apart. Their number depends
// on the shape alone, so that the gradient does not depend on the number of threads.
constexpr std::int64_t most_parts = 16;

void check_norm(NormIndex index, const at::Tensor& x, const at::Tensor& weight, double eps) {
  const OpInfo& op = norm_info(index);
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
  check_call(op, &eps);
}

void check_like(NormIndex index, const char* name, const at::Tensor& tensor, const at::Tensor& x) {
  if (!matches(tensor, x))
    check_matches(norm_info(index), name, tensor, "x", x, /*broadcasts=*/false);
}

struct NamedOut {
  const char* name;
  const at::Tensor& tensor;
};

/// Checks all outputs, then gives each of them the shape of x.
void prepare_outs(NormIndex index, std::initializer_list<NamedOut> outs, const at::Tensor& x) {
  for (const NamedOut& out : outs) check_out(norm_info(index), out.name, out.tensor, "x", x);
  for (const NamedOut& out : outs) at::native::resize_output(out.tensor, x.sizes());
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

/// All tensors have rows in the same order; residual and sum may be undefined.
void run_forward(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                 const at::Tensor& y, const at::Tensor& sum, double eps) {
  if (x.numel() == 0) return;
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = x.numel() / width;
  const NormKernels kernels = norm_kernels(storage_of(x));
  const void* const weights = weight.const_data_ptr();
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    kernels.forward({row(x, begin), residual.defined() ? row(residual, begin) : nullptr, weights,
                     mutable_row(y, begin), sum.defined() ? mutable_row(sum, begin) : nullptr,
                     end - begin, width, eps});
  };
  const TaskPlan plan = plan_rows(rows, width, at::get_num_threads());
  if (plan.tasks == 1) {
    range(0, rows);
  } else {
    at::parallel_for(0, rows, plan.grain, range);
  }
  if (!checks_finite()) return;
  NamedTensors inputs = {{"x", x}, {"weight", weight}};
  NamedTensors outputs = {{"y", y}};
  if (sum.defined()) {
    inputs.insert(inputs.begin() + 1, {"residual", residual});
    outputs.insert(outputs.begin(), {"sum", sum});
  }
  watch(sum.defined() ? "add_rms_norm" : "rms_norm", inputs, outputs);
}

/// Writes the results computed into `made` to where the caller wants them.
void deliver(const at::Tensor& made, const at::Tensor& out) {
  if (!made.is_same(out)) out.copy_(made);
}

/// `out` itself where rows can be written into it at once, else new memory.
at::Tensor target(const at::Tensor& out, const at::Tensor& rows) {
  return out.strides() == rows.strides() ? out : at::empty_like(rows);
}

}  // namespace

void check_overlap(std::initializer_list<const at::Tensor*> outs,
                   std::initializer_list<const at::Tensor*> rows, const at::Tensor& weight) {
  for (const at::Tensor* out : outs) {
    at::assert_no_internal_overlap(*out);
    for (const at::Tensor* tensor : rows) at::assert_no_partial_overlap(*out, *tensor);
    at::assert_no_overlap(*out, weight);
    for (const at::Tensor* other : outs) {
      if (other != out) at::assert_no_overlap(*out, *other);
    }
  }
}

namespace norm_cpu {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  check_norm(NormIndex::RMSNorm, x, weight, eps);
  const at::Tensor rows = with_rows(x);
  const at::Tensor y = at::empty_like(x);
  const at::Tensor made = target(y, rows);
  run_forward(rows, {}, weight.contiguous(), made, {}, eps);
  deliver(made, y);
  return y;
}

void rms_norm_out(const at::Tensor& x, const at::Tensor& weight, double eps,
                  const at::Tensor& out) {
  check_norm(NormIndex::RMSNorm, x, weight, eps);
  prepare_outs(NormIndex::RMSNorm, {{"out", out}}, x);
  check_overlap({&out}, {&x}, weight);
  const at::Tensor rows = with_rows(x);
  const at::Tensor made = target(out, rows);
  run_forward(rows, {}, weight.contiguous(), made, {}, eps);
  deliver(made, out);
}

TensorPair add_rms_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                        double eps) {
  check_norm(NormIndex::AddRMSNorm, x, weight, eps);
  check_like(NormIndex::AddRMSNorm, "residual", residual, x);
  const at::Tensor rows = with_rows(x);
  const at::Tensor y = at::empty_like(x);
  const at::Tensor sum = at::empty_like(x);
  const at::Tensor made_y = target(y, rows);
  const at::Tensor made_sum = target(sum, rows);
  run_forward(rows, in_order_of(rows, residual), weight.contiguous(), made_y, made_sum, eps);
  deliver(made_y, y);
  deliver(made_sum, sum);
  return {y, sum};
}

void add_rms_norm_out(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                      double eps, const at::Tensor& out_y, const at::Tensor& out_sum) {
  check_norm(NormIndex::AddRMSNorm, x, weight, eps);
  check_like(NormIndex::AddRMSNorm, "residual", residual, x);
  prepare_outs(NormIndex::AddRMSNorm, {{"out_y", out_y}, {"out_sum", out_sum}}, x);
  check_overlap({&out_y, &out_sum}, {&x, &residual}, weight);
  const at::Tensor rows = with_rows(x);
  const at::Tensor made_y = target(out_y, rows);
  const at::Tensor made_sum = target(out_sum, rows);
  run_forward(rows, in_order_of(rows, residual), weight.contiguous(), made_y, made_sum, eps);
  deliver(made_y, out_y);
  deliver(made_sum, out_sum);
}

TensorPair rms_norm_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                             double eps) {
  check_norm(NormIndex::RMSNorm, x, weight, eps);
  check_like(NormIndex::RMSNorm, "grad_out", grad, x);
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
  const NormKernels kernels = norm_kernels(storage_of(x));
  at::parallel_for(0, plan.tasks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      const std::int64_t begin = part * plan.grain;
      const std::int64_t end = std::min(begin + plan.grain, row_count);
      kernels.backward({row(grads, begin), row(rows, begin), weights.const_data_ptr(),
                        mutable_row(made, begin), mutable_row(parts, part), end - begin, width,
                        eps});
    }
  });
  deliver(made, x_grad);
  weight_grad.copy_(parts.size(0) == 1 ? parts[0] : at::sum(parts, 0));
  if (checks_finite()) {
    watch("rms_norm_backward", {{"grad_out", grads}, {"x", rows}, {"weight", weights}},
          {{"grad_x", made}, {"grad_weight", weight_grad}});
  }
  return {x_grad, weight_grad};
}

}  // namespace norm_cpu

namespace norm_meta {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  check_norm(NormIndex::RMSNorm, x, weight, eps);
  return at::empty_like(x);
}

void rms_norm_out(const at::Tensor& x, const at::Tensor& weight, double eps,
                  const at::Tensor& out) {
  check_norm(NormIndex::RMSNorm, x, weight, eps);
  prepare_outs(NormIndex::RMSNorm, {{"out", out}}, x);
}

TensorPair rms_norm_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                             double eps) {
  check_norm(NormIndex::RMSNorm, x, weight, eps);
  check_like(NormIndex::RMSNorm, "grad_out", grad, x);
  return {at::empty_like(x), at::empty_like(weight)};
}

TensorPair add_rms_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                        double eps) {
  check_norm(NormIndex::AddRMSNorm, x, weight, eps);
  check_like(NormIndex::AddRMSNorm, "residual", residual, x);
  return {at::empty_like(x), at::empty_like(x)};
}

void add_rms_norm_out(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                      double eps, const at::Tensor& out_y, const at::Tensor& out_sum) {
  check_norm(NormIndex::AddRMSNorm, x, weight, eps);
  check_like(NormIndex::AddRMSNorm, "residual", residual, x);
  prepare_outs(NormIndex::AddRMSNorm, {{"out_y", out_y}, {"out_sum", out_sum}}, x);
}

}  // namespace norm_meta
}  // namespace myops::torch_glue
