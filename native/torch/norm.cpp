// SPDX-License-Identifier: Apache-2.0
// Derivatives of the normalizations, and their registration. The first derivative has a kernel;
// what lies beyond it (double backward, forward mode) is composed of torch's operators, which can
// be differentiated again.
#include "norm.hpp"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <string>

#include "compat.hpp"

namespace myops::torch_glue {
namespace {

using torch::autograd::variable_list;

template <class Signature>
auto find_op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).template typed<Signature>();
}

// Each operator, looked up once.
auto& rms_norm_op() {
  static auto op = find_op<decltype(norm_cpu::rms_norm)>("myops::rms_norm");
  return op;
}
auto& backward_op() {
  static auto op = find_op<decltype(norm_cpu::rms_norm_backward)>("myops::rms_norm_backward");
  return op;
}
auto& add_rms_norm_op() {
  static auto op = find_op<decltype(norm_cpu::add_rms_norm)>("myops::add_rms_norm");
  return op;
}

/// The pieces of the formula in torch's operators, in the compute type.
struct Composed {
  at::Tensor inverse_rms;
  at::Tensor normalized;

  static at::Tensor widened(const at::Tensor& tensor) {
    const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
    return half ? tensor.to(at::kFloat) : tensor;
  }

  Composed(const at::Tensor& x, double eps) {
    const at::Tensor wide = widened(x);
    inverse_rms = at::rsqrt(at::add(at::mean(at::mul(wide, wide), {-1}, /*keepdim=*/true), eps));
    normalized = at::mul(wide, inverse_rms);
  }

  /// The Jacobian of `normalized`, which is symmetric, times `v`.
  at::Tensor jacobian_times(const at::Tensor& v) const {
    const at::Tensor mean = at::mean(at::mul(v, normalized), {-1}, /*keepdim=*/true);
    return at::mul(inverse_rms, at::sub(v, at::mul(normalized, mean)));
  }
};

at::Tensor composed_forward(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const Composed row(x, eps);
  return at::mul(row.normalized, Composed::widened(weight)).to(x.scalar_type());
}

TensorPair composed_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                             double eps) {
  const Composed row(x, eps);
  const at::Tensor wide = Composed::widened(grad);
  const at::Tensor x_grad = row.jacobian_times(at::mul(wide, Composed::widened(weight)));
  const at::Tensor shares = at::mul(wide, row.normalized);
  const at::Tensor weight_grad = shares.dim() == 1 ? shares : at::sum(shares.flatten(0, -2), {0});
  return {x_grad.to(x.scalar_type()), weight_grad.to(weight.scalar_type())};
}

template <class... Tensors>
bool any_tangent(const Tensors&... tensors) {
  return (torch::autograd::isFwGradDefined(tensors) || ...);
}

/// y = norm(x, weight) to (x, weight).
struct NormNode : public torch::autograd::Node {
  torch::autograd::SavedVariable x;
  torch::autograd::SavedVariable weight;
  double eps = 0;

  std::string name() const override { return "RMSNormBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    x.reset_data();
    weight.reset_data();
  }

  variable_list apply(variable_list&& cotangents) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(2);
    if (!cotangents[0].defined()) return results;
    auto [x_grad, weight_grad] =
        backward_op().call(cotangents[0], x.unpack(), weight.unpack(), eps);
    if (task_should_compute_output(0)) results[0] = x_grad;
    if (task_should_compute_output(1)) results[1] = weight_grad;
    return results;
  }
};

/// sum = x + residual to (x, residual).
struct SumNode : public torch::autograd::Node {
  std::string name() const override { return "ResidualSumBackward"; }

  variable_list apply(variable_list&& cotangents) override {
    variable_list results(2);
    for (std::size_t i = 0; i < 2; ++i) {
      if (task_should_compute_output(i)) results[i] = cotangents[0];
    }
    return results;
  }
};

void set_norm_history(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight,
                      double eps) {
  auto node = make_node<NormNode>();
  node->set_next_edges(torch::autograd::collect_next_edges(x, weight));
  node->x = torch::autograd::SavedVariable(x, /*is_output=*/false);
  node->weight = torch::autograd::SavedVariable(weight, /*is_output=*/false);
  node->eps = eps;
  torch::autograd::set_history(y, node);
}

at::Tensor autograd_rms_norm(c10::DispatchKeySet keys, const at::Tensor& x,
                             const at::Tensor& weight, double eps) {
  if (any_tangent(x, weight)) {
    norm_meta::rms_norm(x, weight, eps);  // for its checks: torch's operators would broadcast
    return composed_forward(x, weight, eps);
  }
  at::Tensor y = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return rms_norm_op().redispatch(keys & c10::after_autograd_keyset, x, weight, eps);
  }();
  if (torch::autograd::compute_requires_grad(x, weight)) set_norm_history(y, x, weight, eps);
  return y;
}

TensorPair autograd_rms_norm_backward(c10::DispatchKeySet keys, const at::Tensor& grad,
                                      const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (any_tangent(grad, x, weight) || torch::autograd::compute_requires_grad(grad, x, weight)) {
    norm_meta::rms_norm_backward(grad, x, weight, eps);  // for its checks
    return composed_backward(grad, x, weight, eps);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return backward_op().redispatch(keys & c10::after_autograd_keyset, grad, x, weight, eps);
}

TensorPair autograd_add_rms_norm(c10::DispatchKeySet keys, const at::Tensor& x,
                                 const at::Tensor& residual, const at::Tensor& weight, double eps) {
  if (any_tangent(x, residual, weight)) {
    norm_meta::add_rms_norm(x, residual, weight, eps);  // for its checks
    const at::Tensor sum = at::add(x, residual);
    return {composed_forward(sum, weight, eps), sum};
  }
  auto [y, sum] = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return add_rms_norm_op().redispatch(keys & c10::after_autograd_keyset, x, residual, weight,
                                        eps);
  }();
  if (torch::autograd::compute_requires_grad(x, residual)) {
    auto node = make_node<SumNode>();
    node->set_next_edges(torch::autograd::collect_next_edges(x, residual));
    torch::autograd::set_history(sum, node);
  }
  if (torch::autograd::compute_requires_grad(sum, weight)) set_norm_history(y, sum, weight, eps);
  return {y, sum};
}

/// The out= forms write into memory that no graph may depend on.
template <class... Tensors>
void check_no_gradients(NormIndex index, const Tensors&... tensors) {
  TORCH_CHECK(!torch::autograd::compute_requires_grad(tensors...), "[", norm_info(index).torch_name,
              "] the out= form should be called without gradients. Received a tensor that requires "
              "grad. Call the form without out=, or use torch.no_grad().");
}

void autograd_rms_norm_out(c10::DispatchKeySet keys, const at::Tensor& x, const at::Tensor& weight,
                           double eps, const at::Tensor& out) {
  check_no_gradients(NormIndex::RMSNorm, x, weight, out);
  static auto op = find_op<decltype(norm_cpu::rms_norm_out)>("myops::rms_norm", "out");
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatch(keys & c10::after_autograd_keyset, x, weight, eps, out);
  }
  torch::autograd::impl::bump_version(out);
}

void autograd_add_rms_norm_out(c10::DispatchKeySet keys, const at::Tensor& x,
                               const at::Tensor& residual, const at::Tensor& weight, double eps,
                               const at::Tensor& out_y, const at::Tensor& out_sum) {
  check_no_gradients(NormIndex::AddRMSNorm, x, residual, weight, out_y, out_sum);
  static auto op = find_op<decltype(norm_cpu::add_rms_norm_out)>("myops::add_rms_norm", "out");
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatch(keys & c10::after_autograd_keyset, x, residual, weight, eps, out_y, out_sum);
  }
  torch::autograd::impl::bump_version(out_y);
  torch::autograd::impl::bump_version(out_sum);
}

template <class OnCpu, class OnCuda, class Meta, class Autograd>
void define(torch::Library& library, const std::string& name, const std::string& arguments,
            OnCpu&& cpu, OnCuda&& cuda, Meta&& meta, Autograd&& autograd) {
  library.def((name + arguments).c_str(), {at::Tag::pt2_compliant_tag});
  library.impl(name.c_str(), torch::dispatch(c10::kCPU, cpu));
  library.impl(name.c_str(), torch::dispatch(c10::kCUDA, cuda));
  // Layouts without kernels get the checks' sentence instead of torch's page.
  for (const c10::DispatchKey key :
       {c10::DispatchKey::Meta, c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseCsrCPU,
        c10::DispatchKey::MkldnnCPU, c10::DispatchKey::QuantizedCPU}) {
    library.impl(name.c_str(), torch::dispatch(key, meta));
  }
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Autograd, autograd));
}

}  // namespace

void define_norms(torch::Library& library) {
  define(library, "rms_norm", "(Tensor x, Tensor weight, float eps=1e-06) -> Tensor",
         TORCH_FN(norm_cpu::rms_norm), TORCH_FN(norm_cuda::rms_norm), TORCH_FN(norm_meta::rms_norm),
         TORCH_FN(autograd_rms_norm));
  define(library, "rms_norm.out",
         "(Tensor x, Tensor weight, float eps=1e-06, *, Tensor(a!) out) -> ()",
         TORCH_FN(norm_cpu::rms_norm_out), TORCH_FN(norm_cuda::rms_norm_out),
         TORCH_FN(norm_meta::rms_norm_out), TORCH_FN(autograd_rms_norm_out));
  define(library, "rms_norm_backward",
         "(Tensor grad_out, Tensor x, Tensor weight, float eps=1e-06) -> (Tensor, Tensor)",
         TORCH_FN(norm_cpu::rms_norm_backward), TORCH_FN(norm_cuda::rms_norm_backward),
         TORCH_FN(norm_meta::rms_norm_backward), TORCH_FN(autograd_rms_norm_backward));
  define(library, "add_rms_norm",
         "(Tensor x, Tensor residual, Tensor weight, float eps=1e-06) -> (Tensor, Tensor)",
         TORCH_FN(norm_cpu::add_rms_norm), TORCH_FN(norm_cuda::add_rms_norm),
         TORCH_FN(norm_meta::add_rms_norm), TORCH_FN(autograd_add_rms_norm));
  define(library, "add_rms_norm.out",
         "(Tensor x, Tensor residual, Tensor weight, float eps=1e-06, *, Tensor(a!) out_y, "
         "Tensor(b!) out_sum) -> ()",
         TORCH_FN(norm_cpu::add_rms_norm_out), TORCH_FN(norm_cuda::add_rms_norm_out),
         TORCH_FN(norm_meta::add_rms_norm_out), TORCH_FN(autograd_add_rms_norm_out));
}

}  // namespace myops::torch_glue
