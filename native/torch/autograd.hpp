// SPDX-License-Identifier: Apache-2.0
// Derivatives of every op, written as torch's own generated code writes them: a Node per pass.
// torch::autograd::Function is not used: it refuses torch.func, costs a microsecond per call and
// ties the library to one torch release.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>

#include "compat.hpp"
#include "glue.hpp"

namespace myops::torch_glue {

using torch::autograd::variable_list;

/// The registered operator, looked up once.
template <OpIndex index, Pass pass>
auto& registered() {
  using Signature = typename Glue<index, pass>::Signature;
  static auto handle =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow((MYOPS_NAMESPACE "::" + pass_name(info_of(index), pass)).c_str(), "")
          .template typed<Signature>();
  return handle;
}

/// Calls a pass through the dispatcher, so that the call is itself differentiable.
template <OpIndex index, Pass pass, std::size_t n, std::size_t a>
auto call(const std::array<at::Tensor, n>& tensors, const std::array<double, a>& attributes) {
  return to_array(std::apply(
      [](const auto&... arguments) { return registered<index, pass>().call(arguments...); },
      std::tuple_cat(tensors, attributes)));
}

inline at::Tensor sum_of(const at::Tensor& left, const at::Tensor& right) {
  if (!left.defined()) return right;
  return right.defined() ? at::add(left, right) : left;
}

/// Derivatives of one pass: `vjp` pulls cotangents of the results back to the arguments, `jvp`
/// pushes tangents of the arguments forward. An undefined tensor stands for zero.
template <OpIndex index, Pass pass>
struct Derivative {
  static constexpr std::size_t inputs = input_count<index>;
  static constexpr std::size_t n = tensor_count(inputs, pass);
  static constexpr std::size_t m = result_count(inputs, pass);
  using Attributes = std::array<double, attribute_count<index>>;
  using Arguments = std::array<at::Tensor, n>;
  using Results = std::array<at::Tensor, m>;

  static std::array<at::Tensor, inputs> op_inputs(const Arguments& arguments) {
    std::array<at::Tensor, inputs> values;
    for (std::size_t i = 0; i < inputs; ++i) values[i] = arguments[n - inputs + i];
    return values;
  }

  static at::Tensor defined(const at::Tensor& tensor, const at::Tensor& like) {
    return tensor.defined() ? tensor : at::zeros_like(like);
  }

  /// g * dy/dx_i for all i.
  static std::array<at::Tensor, inputs> first(const at::Tensor& grad, const Arguments& arguments,
                                              const Attributes& attributes) {
    const std::array<at::Tensor, 1> head{grad};
    return call<index, Pass::backward>(concatenate(head, op_inputs(arguments)), attributes);
  }

  /// g * sum_j h_j d2y/dx_i dx_j for all i.
  static std::array<at::Tensor, inputs> second(const std::array<at::Tensor, inputs>& h,
                                               const at::Tensor& grad, const Arguments& arguments,
                                               const Attributes& attributes) {
    const std::array<at::Tensor, 1> middle{grad};
    return call<index, Pass::double_backward>(
        concatenate(h, concatenate(middle, op_inputs(arguments))), attributes);
  }

  template <std::size_t a, std::size_t b>
  static std::array<at::Tensor, a + b> concatenate(const std::array<at::Tensor, a>& left,
                                                   const std::array<at::Tensor, b>& right) {
    std::array<at::Tensor, a + b> all;
    for (std::size_t i = 0; i < a; ++i) all[i] = left[i];
    for (std::size_t i = 0; i < b; ++i) all[a + i] = right[i];
    return all;
  }

  [[noreturn]] static void no_third() {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "[", info_of(index).torch_name,
                                "] derivatives are defined up to the second. "
                                "Received a request for the third with respect to ",
                                info_of(index).input_names[0],
                                ". Compose the function from torch operators for that.");
  }

  template <class Wanted>
  static Arguments vjp(const variable_list& cotangents, const Arguments& arguments,
                       const Attributes& attributes, const Wanted& wanted) {
    Arguments grads;
    if constexpr (pass == Pass::forward) {
      const auto parts = first(cotangents[0], arguments, attributes);
      for (std::size_t i = 0; i < n; ++i) grads[i] = parts[i];
    } else if constexpr (pass == Pass::backward) {
      std::array<at::Tensor, inputs> h;
      for (std::size_t i = 0; i < inputs; ++i) h[i] = defined(cotangents[i], arguments[0]);
      if (wanted(0)) {
        for (std::size_t i = 0; i < inputs; ++i) {
          if (cotangents[i].defined()) {
            grads[0] = sum_of(grads[0], first(h[i], arguments, attributes)[i]);
          }
        }
      }
      bool any_input = false;
      for (std::size_t i = 1; i < n; ++i) any_input = any_input || wanted(i);
      if (any_input) {
        const auto parts = second(h, arguments[0], arguments, attributes);
        for (std::size_t i = 0; i < inputs; ++i) grads[1 + i] = parts[i];
      }
    } else {
      std::array<at::Tensor, inputs> c;
      for (std::size_t i = 0; i < inputs; ++i) c[i] = defined(cotangents[i], arguments[0]);
      for (std::size_t i = inputs + 1; i < n; ++i) {
        if (wanted(i)) no_third();
      }
      // The pass is linear in the h and in g, and symmetric in h and the cotangents.
      const auto for_h = second(c, arguments[inputs], arguments, attributes);
      for (std::size_t i = 0; i < inputs; ++i) grads[i] = for_h[i];
      if (wanted(inputs)) {
        std::array<at::Tensor, inputs> h;
        for (std::size_t i = 0; i < inputs; ++i) h[i] = arguments[i];
        const auto parts = second(h, at::ones_like(arguments[inputs]), arguments, attributes);
        for (std::size_t i = 0; i < inputs; ++i) {
          grads[inputs] = sum_of(grads[inputs], at::mul(c[i], parts[i]));
        }
      }
    }
    return grads;
  }

  static Results jvp(const Arguments& tangents, const Arguments& arguments,
                     const Attributes& attributes) {
    Results results;
    if constexpr (pass == Pass::forward) {
      for (std::size_t i = 0; i < n; ++i) {
        if (!tangents[i].defined()) continue;
        results[0] = sum_of(results[0], first(tangents[i], arguments, attributes)[i]);
      }
    } else if constexpr (pass == Pass::backward) {
      if (tangents[0].defined()) {
        const auto parts = first(tangents[0], arguments, attributes);
        for (std::size_t i = 0; i < inputs; ++i) results[i] = parts[i];
      }
      bool any_input = false;
      std::array<at::Tensor, inputs> h;
      for (std::size_t i = 0; i < inputs; ++i) {
        any_input = any_input || tangents[1 + i].defined();
        h[i] = defined(tangents[1 + i], arguments[0]);
      }
      if (any_input) {
        const auto parts = second(h, arguments[0], arguments, attributes);
        for (std::size_t i = 0; i < inputs; ++i) results[i] = sum_of(results[i], parts[i]);
      }
    } else {
      for (std::size_t i = inputs + 1; i < n; ++i) {
        if (tangents[i].defined()) no_third();
      }
      std::array<at::Tensor, inputs> h;
      std::array<at::Tensor, inputs> h_tangent;
      for (std::size_t i = 0; i < inputs; ++i) {
        h[i] = arguments[i];
        h_tangent[i] = defined(tangents[i], arguments[inputs]);
      }
      const auto parts = second(h_tangent, arguments[inputs], arguments, attributes);
      for (std::size_t i = 0; i < inputs; ++i) results[i] = parts[i];
      if (tangents[inputs].defined()) {
        const auto more = second(h, tangents[inputs], arguments, attributes);
        for (std::size_t i = 0; i < inputs; ++i) results[i] = sum_of(results[i], more[i]);
      }
    }
    return results;
  }
};

template <OpIndex index, Pass pass,
          class Tensors = std::make_index_sequence<tensor_count(input_count<index>, pass)>,
          class AttributeIndices = std::make_index_sequence<attribute_count<index>>,
          class Results = std::make_index_sequence<result_count(input_count<index>, pass)>>
struct Autograd;

template <OpIndex index, Pass pass, std::size_t... T, std::size_t... A, std::size_t... R>
struct Autograd<index, pass, std::index_sequence<T...>, std::index_sequence<A...>,
                std::index_sequence<R...>> {
  using Rules = Derivative<index, pass>;

  struct DerivativeNode : public torch::autograd::Node {
    torch::autograd::SavedVariable saved[sizeof...(T)];
    typename Rules::Attributes attributes;

    std::string name() const override {
      constexpr const char* suffixes[] = {"Backward", "BackwardBackward", "DoubleBackwardBackward"};
      return info_of(index).name + std::string(suffixes[static_cast<std::size_t>(pass)]);
    }

    void release_variables() override {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto& variable : saved) variable.reset_data();
    }

    variable_list apply(variable_list&& cotangents) override {
      std::lock_guard<std::mutex> lock(mutex_);
      variable_list results(sizeof...(T));
      bool any = false;
      for (const at::Tensor& cotangent : cotangents) any = any || cotangent.defined();
      if (!any) return results;
      const typename Rules::Arguments arguments{saved[T].unpack()...};
      const auto wanted = [this](std::size_t i) { return task_should_compute_output(i); };
      const auto grads = Rules::vjp(cotangents, arguments, attributes, wanted);
      for (std::size_t i = 0; i < sizeof...(T); ++i) {
        if (wanted(i)) results[i] = grads[i];
      }
      return results;
    }
  };

  /// Whether shapes differ, and may: others are left to the checks.
  static bool can_and_must_expand(const TensorRefs<sizeof...(T)>& tensors) {
    bool can = true;
    bool must = false;
    for (const at::Tensor* tensor : tensors) {
      can = can && tensors[0]->defined() && expands_to(*tensor, *tensors[0]);
      must = must || (can && tensor->sym_sizes() != tensors[0]->sym_sizes());
    }
    return can && must;
  }

  static Result<index, pass> kernel(c10::DispatchKeySet keys, TensorArgument<T>... tensors,
                                    AttributeArgument<A>... attributes) {
    if constexpr (broadcasts<index, pass>) {
      // At expanded inputs expand's own derivatives do the sums. Without derivatives the kernel
      // below does it, and traced graphs and exported files keep the small input.
      const bool derived = torch::autograd::compute_requires_grad(tensors...) ||
                           (torch::autograd::isFwGradDefined(tensors) || ...);
      const TensorRefs<sizeof...(T)> arguments{&tensors...};
      if (derived && can_and_must_expand(arguments)) {
        return registered<index, pass>().call(
            arguments[T]->expand_symint(arguments[0]->sym_sizes())..., attributes...);
      }
    }
    NodePtr<DerivativeNode> node;
    if (torch::autograd::compute_requires_grad(tensors...)) {
      node = make_node<DerivativeNode>();
      node->set_next_edges(torch::autograd::collect_next_edges(tensors...));
      ((node->saved[T] = torch::autograd::SavedVariable(tensors, /*is_output=*/false)), ...);
      node->attributes = {attributes...};
    }
    auto results = [&] {
      at::AutoDispatchBelowADInplaceOrView guard;
      return to_array(registered<index, pass>().redispatch(keys & c10::after_autograd_keyset,
                                                           tensors..., attributes...));
    }();
    if (node) {
      for (const at::Tensor& result : results) torch::autograd::set_history(result, node);
    }
    // Without this, forward-mode tangents would be zero and nobody would be told.
    if ((torch::autograd::isFwGradDefined(tensors) || ...)) {
      // The primals: with the dual tensors the derivative would be differentiated again.
      const auto tangents = Rules::jvp({tensors._fw_grad(/*level=*/0)...},
                                       {tensors._fw_primal(/*level=*/0)...}, {attributes...});
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (!tangents[i].defined()) continue;
        results[i]._set_fw_grad(tangents[i], /*level=*/0, /*is_inplace_op=*/false);
      }
    }
    return to_result(results);
  }

  static void out_kernel(c10::DispatchKeySet keys, TensorArgument<T>... tensors,
                         AttributeArgument<A>... attributes, TensorArgument<R>... out) {
    const OpInfo& op = info_of(index);
    TORCH_CHECK(!torch::autograd::compute_requires_grad(tensors..., out...), "[", op.torch_name,
                "] the out= form should be called without gradients. Received a tensor that "
                "requires grad. Call the form without out=, or use torch.no_grad().");
    static auto handle =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow((MYOPS_NAMESPACE "::" + pass_name(op, pass)).c_str(), "out")
            .template typed<typename Glue<index, pass>::OutSignature>();
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      handle.redispatch(keys & c10::after_autograd_keyset, tensors..., attributes..., out...);
    }
    (torch::autograd::impl::bump_version(out), ...);
  }
};

}  // namespace myops::torch_glue
