// SPDX-License-Identifier: Apache-2.0
// Derivatives of the normalizations, and their registration. The first derivative has a kernel;
// what lies beyond it (double backward, forward mode) is composed of torch's operators, which can
// be differentiated again.
#include "norm.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "compat.hpp"
#include "glue.hpp"
#include "ops/norm.hpp"
#include "schema.hpp"

namespace myops::torch_glue {
namespace {

using torch::autograd::variable_list;

template <NormIndex index>
const OpInfo& norm_info() {
  return *(norm_ops().begin() + static_cast<std::size_t>(index));
}

template <NormIndex index>
using NormFunctor = typename NormOf<index>::type;

/// The norm whose derivative is that of `index`, at the sum with the residual if it has one.
template <NormIndex index>
constexpr NormIndex plain = NormIndexOf<typename NormFunctor<index>::Formula>::value;

template <NormIndex index>
using Attributes = std::array<double, NormFunctor<index>::attributes.size()>;

at::Tensor widened(const at::Tensor& tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

at::Tensor row_mean(const at::Tensor& tensor) { return at::mean(tensor, {-1}, /*keepdim=*/true); }

/// The formulas in torch's operators, in the compute type.
template <NormIndex index>
struct Composed {
  using Formula = typename NormFunctor<index>::Formula;

  static at::Tensor forward(const at::Tensor& x, const at::Tensor& weight,
                            const double* attributes) {
    const at::Tensor wide = widened(x);
    const at::Tensor factor = Formula(attributes).factor(row_mean(at::mul(wide, wide)), 1.0);
    return at::mul(at::mul(wide, factor), widened(weight)).to(x.scalar_type());
  }

  static TensorPair backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                             const double* attributes) {
    const Formula norm(attributes);
    const at::Tensor wide = widened(x);
    const at::Tensor wide_grad = widened(grad);
    const at::Tensor mean_square = row_mean(at::mul(wide, wide));
    const at::Tensor factor = norm.factor(mean_square, 1.0);
    const at::Tensor through = at::mul(wide_grad, widened(weight));
    const at::Tensor mean = at::mul(row_mean(at::mul(through, wide)), norm.pull(mean_square, 1.0));
    const at::Tensor x_grad = at::mul(factor, at::sub(through, at::mul(wide, mean)));
    const at::Tensor shares = at::mul(wide_grad, at::mul(wide, factor));
    const at::Tensor weight_grad = shares.dim() == 1 ? shares : at::sum(shares.flatten(0, -2), {0});
    return {x_grad.to(x.scalar_type()), weight_grad.to(weight.scalar_type())};
  }
};

/// One of the operators registered for a norm, looked up once: their signatures differ.
template <NormIndex index, class Signature>
auto& registered(const char* suffix, const char* overload) {
  static auto handle =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow(
              (std::string(MYOPS_NAMESPACE "::") + norm_info<index>().torch_name + suffix).c_str(),
              overload)
          .template typed<Signature>();
  return handle;
}

template <class... Tensors>
bool any_tangent(const Tensors&... tensors) {
  return (torch::autograd::isFwGradDefined(tensors) || ...);
}

/// The backward pass as the dispatcher calls it, with the attributes as so many doubles.
template <NormIndex index, class = std::make_index_sequence<Attributes<index>{}.size()>>
struct NormGlue;

template <NormIndex index, std::size_t... A>
struct NormGlue<index, std::index_sequence<A...>> {
  using BackwardSignature = TensorPair(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       AttributeArgument<A>...);

  static auto& backward_op() { return registered<index, BackwardSignature>("_backward", ""); }

  template <TensorPair (*function)(const at::Tensor&, const NormArguments&)>
  static TensorPair backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                             AttributeArgument<A>... values) {
    const Attributes<index> attributes{values...};
    return function(grad, {norm_info<index>(), x, {}, weight, attributes.data()});
  }

  static TensorPair autograd_backward(c10::DispatchKeySet keys, const at::Tensor& grad,
                                      const at::Tensor& x, const at::Tensor& weight,
                                      AttributeArgument<A>... values) {
    if (any_tangent(grad, x, weight) || torch::autograd::compute_requires_grad(grad, x, weight)) {
      const Attributes<index> attributes{values...};
      backward<norm_meta::backward>(grad, x, weight, values...);  // for its checks
      return Composed<index>::backward(grad, x, weight, attributes.data());
    }
    at::AutoDispatchBelowADInplaceOrView guard;
    return backward_op().redispatch(keys & c10::after_autograd_keyset, grad, x, weight, values...);
  }
};

/// y = norm(x, weight) to (x, weight).
template <NormIndex index>
struct NormNode : public torch::autograd::Node {
  torch::autograd::SavedVariable x;
  torch::autograd::SavedVariable weight;
  Attributes<index> attributes;

  std::string name() const override { return std::string(norm_info<index>().name) + "Backward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    x.reset_data();
    weight.reset_data();
  }

  variable_list apply(variable_list&& cotangents) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(2);
    if (!cotangents[0].defined()) return results;
    auto [x_grad, weight_grad] = std::apply(
        [&](auto... values) {
          return NormGlue<index>::backward_op().call(cotangents[0], x.unpack(), weight.unpack(),
                                                     values...);
        },
        attributes);
    if (task_should_compute_output(0)) results[0] = x_grad;
    if (task_should_compute_output(1)) results[1] = weight_grad;
    return results;
  }
};

template <NormIndex index>
void set_norm_history(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight,
                      const Attributes<index>& attributes) {
  auto node = make_node<NormNode<index>>();
  node->set_next_edges(torch::autograd::collect_next_edges(x, weight));
  node->x = torch::autograd::SavedVariable(x, /*is_output=*/false);
  node->weight = torch::autograd::SavedVariable(weight, /*is_output=*/false);
  node->attributes = attributes;
  torch::autograd::set_history(y, node);
}

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

/// The forward pass, likewise: R is empty, or has one element where there is a residual.
template <NormIndex index,
          class Residual = std::make_index_sequence<NormFunctor<index>::inputs.size() - 2>,
          class Values = std::make_index_sequence<Attributes<index>{}.size()>>
struct ForwardGlue;

template <NormIndex index, std::size_t... R, std::size_t... A>
struct ForwardGlue<index, std::index_sequence<R...>, std::index_sequence<A...>> {
  static constexpr bool adds = sizeof...(R) == 1;
  static_assert(sizeof...(R) <= 1, "x, at most one residual, and the weight");
  using Result = std::conditional_t<adds, TensorPair, at::Tensor>;
  using Signature = Result(const at::Tensor&, TensorArgument<R>..., const at::Tensor&,
                           AttributeArgument<A>...);
  using OutSignature = void(const at::Tensor&, TensorArgument<R>..., const at::Tensor&,
                            AttributeArgument<A>..., const at::Tensor&, TensorArgument<R>...);

  static Result result(const NormOuts& outs) {
    if constexpr (adds) {
      return {outs.y, outs.sum};
    } else {
      return outs.y;
    }
  }

  /// The only one of no or one tensors, or an undefined one.
  static const at::Tensor& only(TensorArgument<R>... tensors) {
    static const at::Tensor none;
    if constexpr (adds) {
      return (tensors, ...);
    } else {
      return none;
    }
  }

  template <NormOuts (*function)(const NormArguments&)>
  static Result forward(const at::Tensor& x, TensorArgument<R>... residual,
                        const at::Tensor& weight, AttributeArgument<A>... values) {
    const Attributes<index> attributes{values...};
    return result(function({norm_info<index>(), x, only(residual...), weight, attributes.data()}));
  }

  template <void (*function)(const NormArguments&, const NormOuts&)>
  static void forward_out(const at::Tensor& x, TensorArgument<R>... residual,
                          const at::Tensor& weight, AttributeArgument<A>... values,
                          const at::Tensor& y, TensorArgument<R>... sum) {
    const Attributes<index> attributes{values...};
    function({norm_info<index>(), x, only(residual...), weight, attributes.data()},
             {y, only(sum...)});
  }

  static Result autograd(c10::DispatchKeySet keys, const at::Tensor& x,
                         TensorArgument<R>... residual, const at::Tensor& weight,
                         AttributeArgument<A>... values) {
    const Attributes<index> attributes{values...};
    if (any_tangent(x, residual..., weight)) {
      // For its checks: torch's operators would broadcast.
      forward<norm_meta::forward>(x, residual..., weight, values...);
      const at::Tensor total = adds ? at::add(x, only(residual...)) : x;
      return result({Composed<index>::forward(total, weight, attributes.data()), total});
    }
    Result outs = [&] {
      at::AutoDispatchBelowADInplaceOrView guard;
      return registered<index, Signature>("", "").redispatch(keys & c10::after_autograd_keyset, x,
                                                             residual..., weight, values...);
    }();
    if constexpr (adds) {
      auto& [y, sum] = outs;
      if (torch::autograd::compute_requires_grad(x, residual...)) {
        auto node = make_node<SumNode>();
        node->set_next_edges(torch::autograd::collect_next_edges(x, residual...));
        torch::autograd::set_history(sum, node);
      }
      if (torch::autograd::compute_requires_grad(sum, weight)) {
        set_norm_history<plain<index>>(y, sum, weight, attributes);
      }
    } else if (torch::autograd::compute_requires_grad(x, weight)) {
      set_norm_history<plain<index>>(outs, x, weight, attributes);
    }
    return outs;
  }

  /// The out= forms write into memory that no graph may depend on.
  static void autograd_out(c10::DispatchKeySet keys, const at::Tensor& x,
                           TensorArgument<R>... residual, const at::Tensor& weight,
                           AttributeArgument<A>... values, const at::Tensor& y,
                           TensorArgument<R>... sum) {
    TORCH_CHECK(
        !torch::autograd::compute_requires_grad(x, residual..., weight, y, sum...), "[",
        norm_info<index>().torch_name,
        "] the out= form should be called without gradients. Received a tensor that requires "
        "grad. Call the form without out=, or use torch.no_grad().");
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      registered<index, OutSignature>("", "out").redispatch(
          keys & c10::after_autograd_keyset, x, residual..., weight, values..., y, sum...);
    }
    torch::autograd::impl::bump_version(y);
    (torch::autograd::impl::bump_version(sum), ...);
  }
};

/// The schema's text after the name: tensors, attributes with defaults, outputs, results.
std::string signature(const OpInfo& op, const std::string& tensors, const std::string& outs,
                      const char* results) {
  return "(" + tensors + attribute_arguments(op) + outs + ") -> " + results;
}

template <class OnCpu, class OnCuda, class Meta, class Autograd>
void define(torch::Library& library, const std::string& name, const std::string& signature,
            OnCpu&& cpu, OnCuda&& cuda, Meta&& meta, Autograd&& autograd) {
  library.def((name + signature).c_str(), {at::Tag::pt2_compliant_tag});
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

template <NormIndex index>
void define_norm(torch::Library& library) {
  using Forward = ForwardGlue<index>;
  constexpr bool adds = Forward::adds;
  const OpInfo& op = norm_info<index>();
  const std::string name = op.torch_name;
  const char* const tensors =
      adds ? "Tensor x, Tensor residual, Tensor weight" : "Tensor x, Tensor weight";
  define(library, name, signature(op, tensors, "", adds ? "(Tensor, Tensor)" : "Tensor"),
         TORCH_FN(Forward::template forward<norm_cpu::forward>),
         TORCH_FN(Forward::template forward<norm_cuda::forward>),
         TORCH_FN(Forward::template forward<norm_meta::forward>), TORCH_FN(Forward::autograd));
  const char* const outs =
      adds ? ", *, Tensor(a!) out_y, Tensor(b!) out_sum" : ", *, Tensor(a!) out";
  define(library, name + ".out", signature(op, tensors, outs, "()"),
         TORCH_FN(Forward::template forward_out<norm_cpu::forward_out>),
         TORCH_FN(Forward::template forward_out<norm_cuda::forward_out>),
         TORCH_FN(Forward::template forward_out<norm_meta::forward_out>),
         TORCH_FN(Forward::autograd_out));
  if constexpr (!adds) {
    using Glue = NormGlue<index>;
    define(library, name + "_backward",
           signature(op, "Tensor grad_out, Tensor x, Tensor weight", "", "(Tensor, Tensor)"),
           TORCH_FN(Glue::template backward<norm_cpu::backward>),
           TORCH_FN(Glue::template backward<norm_cuda::backward>),
           TORCH_FN(Glue::template backward<norm_meta::backward>),
           TORCH_FN(Glue::autograd_backward));
  }
}

}  // namespace

void define_norms(torch::Library& library) {
#define MYOPS_DEFINE(Name, torch_name) define_norm<NormIndex::Name>(library);
  MYOPS_NORM_OPS(MYOPS_DEFINE)
#undef MYOPS_DEFINE
}

}  // namespace myops::torch_glue
