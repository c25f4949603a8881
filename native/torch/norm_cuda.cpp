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

void run_forward(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                 const at::Tensor& y, const at::Tensor& sum, double eps) {
  check_status(cuda_status());
  if (x.numel() == 0) return;
  const c10::DeviceGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  const at::Tensor others = residual.defined() ? residual.contiguous() : residual;
  const at::Tensor weights = weight.contiguous();
  const auto target = [&](const at::Tensor& out) {
    return !out.defined() || out.is_contiguous() ? out : at::empty_like(rows);
  };
  const at::Tensor made_y = target(y);
  const at::Tensor made_sum = target(sum);
  NormForward call{};
  call.x = rows.const_data_ptr();
  call.residual = others.defined() ? others.const_data_ptr() : nullptr;
  call.weight = weights.const_data_ptr();
  call.y = made_y.mutable_data_ptr();
  call.sum = made_sum.defined() ? made_sum.mutable_data_ptr() : nullptr;
  call.rows = rows_of(x);
  call.width = x.size(-1);
  call.eps = eps;
  check_status(cuda_norm_kernels(*dtype_of(x)).forward(call, current_stream(x.device())));
  if (!made_y.is_same(y)) y.copy_(made_y);
  if (sum.defined() && !made_sum.is_same(sum)) sum.copy_(made_sum);
}

}  // namespace

// The shapes, dtypes and results are those of the meta kernels, which check.

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor y = norm_meta::rms_norm(x, weight, eps);
  run_forward(x, {}, weight, y, {}, eps);
  return y;
}

void rms_norm_out(const at::Tensor& x, const at::Tensor& weight, double eps,
                  const at::Tensor& out) {
  norm_meta::rms_norm_out(x, weight, eps, out);
  check_overlap({&out}, {&x}, weight);
  run_forward(x, {}, weight, out, {}, eps);
}

TensorPair add_rms_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                        double eps) {
  const TensorPair results = norm_meta::add_rms_norm(x, residual, weight, eps);
  run_forward(x, residual, weight, std::get<0>(results), std::get<1>(results), eps);
  return results;
}

void add_rms_norm_out(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                      double eps, const at::Tensor& out_y, const at::Tensor& out_sum) {
  norm_meta::add_rms_norm_out(x, residual, weight, eps, out_y, out_sum);
  check_overlap({&out_y, &out_sum}, {&x, &residual}, weight);
  run_forward(x, residual, weight, out_y, out_sum, eps);
}

TensorPair rms_norm_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                             double eps) {
  auto [x_grad, weight_grad] = norm_meta::rms_norm_backward(grad, x, weight, eps);
  check_status(cuda_status());
  if (x.numel() == 0) {
    weight_grad.zero_();
    return {x_grad, weight_grad};
  }
  const c10::DeviceGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  const at::Tensor grads = grad.contiguous();
  const at::Tensor weights = weight.contiguous();
  const at::Tensor made = x_grad.is_contiguous() ? x_grad : at::empty_like(rows);
  const std::int64_t parts = std::min(rows_of(x), most_parts);
  const auto compute_type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor shares = at::zeros({parts, x.size(-1)}, x.options().dtype(compute_type));
  const NormBackward call{grads.const_data_ptr(),
                          rows.const_data_ptr(),
                          weights.const_data_ptr(),
                          made.mutable_data_ptr(),
                          shares.mutable_data_ptr(),
                          rows_of(x),
                          x.size(-1),
                          eps};
  check_status(cuda_norm_kernels(*dtype_of(x)).backward(call, parts, current_stream(x.device())));
  if (!made.is_same(x_grad)) x_grad.copy_(made);
  weight_grad.copy_(at::sum(shares, {0}));
  return {x_grad, weight_grad};
}

}  // namespace myops::torch_glue::norm_cuda
