// SPDX-License-Identifier: Apache-2.0
// The normalizations on CUDA: tensors as contiguous rows, copied once where they are not.
#include <algorithm>

#include "devices.hpp"
#include "norm.hpp"

namespace myops::torch_glue::norm_cuda {
namespace {

// Parts of the rows whose shares of the weight's gradient are summed apart: enough blocks for any
// device, and a number that depends on the shape alone.
constexpr std::int64_t most_parts = 1024;

std::int64_t rows_of(const at::Tensor& x) { return x.numel() / x.size(-1); }

/// Computes into `outs`, which have the shape of x.
void compute(const NormArguments& call, const NormOuts& outs) {
  const auto& [op, x, residual, weight, attributes] = call;
  check_status(cuda_status());
  if (x.numel() == 0) return;
  const c10::DeviceGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  const at::Tensor others = residual.defined() ? residual.contiguous() : residual;
  const at::Tensor weights = weight.contiguous();
  const auto target = [&](const at::Tensor& out) {
    return !out.defined() || out.is_contiguous() ? out : at::empty_like(rows);
  };
  const NormOuts made{target(outs.y), target(outs.sum)};
  NormForward launch{};
  launch.x = rows.const_data_ptr();
  launch.residual = others.defined() ? others.const_data_ptr() : nullptr;
  launch.weight = weights.const_data_ptr();
  launch.y = made.y.mutable_data_ptr();
  launch.sum = made.sum.defined() ? made.sum.mutable_data_ptr() : nullptr;
  launch.rows = rows_of(x);
  launch.width = x.size(-1);
  std::copy_n(attributes, op.attribute_count, launch.attributes);
  check_status(cuda_norm_kernels(op, *dtype_of(x)).forward(launch, current_stream(x.device())));
  if (!made.y.is_same(outs.y)) outs.y.copy_(made.y);
  if (made.sum.defined() && !made.sum.is_same(outs.sum)) outs.sum.copy_(made.sum);
}

}  // namespace

// The shapes, dtypes and results are those of the meta kernels, which check.

NormOuts forward(const NormArguments& call) {
  NormOuts outs = norm_meta::forward(call);
  compute(call, outs);
  return outs;
}

void forward_out(const NormArguments& call, const NormOuts& outs) {
  norm_meta::forward_out(call, outs);
  check_overlap(outs, call);
  compute(call, outs);
}

TensorPair backward(const at::Tensor& grad, const NormArguments& call) {
  auto [x_grad, weight_grad] = norm_meta::backward(grad, call);
  const at::Tensor& x = call.x;
  check_status(cuda_status());
  if (x.numel() == 0) {
    weight_grad.zero_();
    return {x_grad, weight_grad};
  }
  const c10::DeviceGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  const at::Tensor grads = grad.contiguous();
  const at::Tensor weights = call.weight.contiguous();
  const at::Tensor made = x_grad.is_contiguous() ? x_grad : at::empty_like(rows);
  const std::int64_t parts = std::min(rows_of(x), most_parts);
  const auto compute_type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor shares = at::zeros({parts, x.size(-1)}, x.options().dtype(compute_type));
  NormBackward launch{grads.const_data_ptr(),
                      rows.const_data_ptr(),
                      weights.const_data_ptr(),
                      made.mutable_data_ptr(),
                      shares.mutable_data_ptr(),
                      rows_of(x),
                      x.size(-1),
                      {}};
  std::copy_n(call.attributes, call.op.attribute_count, launch.attributes);
  check_status(
      cuda_norm_kernels(call.op, *dtype_of(x)).backward(launch, parts, current_stream(x.device())));
  if (!made.is_same(x_grad)) x_grad.copy_(made);
  weight_grad.copy_(at::sum(shares, {0}));
  return {x_grad, weight_grad};
}

}  // namespace myops::torch_glue::norm_cuda
