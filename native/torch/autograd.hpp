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
          .findSchemaOrThrow(("myops::" + pass_name(info_of(index), pass)).c_str(), "")
          .template typed<Signature>();
  return handle;
}

template <OpIndex index, Pass pass, class Tensors = std::make_index_sequence<tensor_count(pass)>,
          class Attributes =
              std::make_index_sequence<FunctorOf<index, float>::type::attributes.size()>>
struct Autograd;

template <OpIndex index, Pass pass, std::size_t... T, std::size_t... A>
struct Autograd<index, pass, std::index_sequence<T...>, std::index_sequence<A...>> {
  using Attributes = std::array<double, sizeof...(A)>;
  using Tensors = std::array<at::Tensor, sizeof...(T)>;

  /// The derivative of the pass in the direction `direction` with respect to tensor argument `i`.
  /// The passes are elementwise, so this is both the vector-Jacobian product and its transpose.
  static at::Tensor directional(const at::Tensor& direction, std::size_t i, const Tensors& tensors,
                                const Attributes& attributes) {
    if constexpr (pass == Pass::forward) {
      return registered<index, Pass::backward>().call(direction, tensors[0], attributes[A]...);
    } else if constexpr (pass == Pass::backward) {
      // Linear in grad_out.
      if (i == 0) {
        return registered<index, Pass::backward>().call(direction, tensors[1], attributes[A]...);
      }
      return registered<index, Pass::double_backward>().call(direction, tensors[0], tensors[1],
                                                             attributes[A]...);
    } else {
      // Linear in grad_grad and in grad_out.
      if (i == 0) {
        return registered<index, pass>().call(direction, tensors[1], tensors[2], attributes[A]...);
      }
      if (i == 1) {
        return registered<index, pass>().call(tensors[0], direction, tensors[2], attributes[A]...);
      }
      const OpInfo& op = info_of(index);
      TORCH_CHECK_NOT_IMPLEMENTED(false, "[", op.torch_name,
                                  "] derivatives are defined up to the second. Received a "
                                  "request for the third with respect to ",
                                  op.input_names[0],
                                  ". Compose the function from torch operators for that.");
    }
  }

  struct DerivativeNode : public torch::autograd::Node {
    torch::autograd::SavedVariable saved[sizeof...(T)];
    Attributes attributes;

    std::string name() const override {
      constexpr const char* suffixes[] = {"Backward", "BackwardBackward", "DoubleBackwardBackward"};
      return info_of(index).name + std::string(suffixes[static_cast<std::size_t>(pass)]);
    }

    void release_variables() override {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto& variable : saved) variable.reset_data();
    }

    variable_list apply(variable_list&& grads) override {
      std::lock_guard<std::mutex> lock(mutex_);
      variable_list results(sizeof...(T));
      if (!grads[0].defined()) return results;
      const Tensors tensors{saved[T].unpack()...};
      for (std::size_t i = 0; i < sizeof...(T); ++i) {
        if (task_should_compute_output(i)) {
          results[i] = directional(grads[0], i, tensors, attributes);
        }
      }
      return results;
    }
  };

  static at::Tensor kernel(c10::DispatchKeySet keys, TensorArgument<T>... tensors,
                           AttributeArgument<A>... attributes) {
    NodePtr<DerivativeNode> node;
    if (torch::autograd::compute_requires_grad(tensors...)) {
      node = make_node<DerivativeNode>();
      node->set_next_edges(torch::autograd::collect_next_edges(tensors...));
      ((node->saved[T] = torch::autograd::SavedVariable(tensors, /*is_output=*/false)), ...);
      node->attributes = {attributes...};
    }
    at::Tensor result;
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      result = registered<index, pass>().redispatch(keys & c10::after_autograd_keyset, tensors...,
                                                    attributes...);
    }
    if (node) torch::autograd::set_history(result, node);
    // Without this, forward-mode tangents would be zero and nobody would be told.
    if ((torch::autograd::isFwGradDefined(tensors) || ...)) {
      at::Tensor tangent;
      // The primals: with the dual tensors the derivative would be differentiated again.
      const Tensors primals{tensors._fw_primal(/*level=*/0)...};
      const Tensors directions{tensors._fw_grad(/*level=*/0)...};
      for (std::size_t i = 0; i < sizeof...(T); ++i) {
        if (!directions[i].defined()) continue;
        const at::Tensor part = directional(directions[i], i, primals, {attributes...});
        tangent = tangent.defined() ? at::add(tangent, part) : part;
      }
      result._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
    }
    return result;
  }

  static void out_kernel(c10::DispatchKeySet keys, TensorArgument<T>... tensors,
                         AttributeArgument<A>... attributes, const at::Tensor& out) {
    const OpInfo& op = info_of(index);
    TORCH_CHECK(!torch::autograd::compute_requires_grad(tensors..., out), "[", op.torch_name,
                "] the out= form should be called without gradients. Received a tensor that "
                "requires grad. Call the form without out=, or use torch.no_grad().");
    static auto handle = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(("myops::" + pass_name(op, pass)).c_str(), "out")
                             .template typed<typename Glue<index, pass>::OutSignature>();
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      handle.redispatch(keys & c10::after_autograd_keyset, tensors..., attributes..., out);
    }
    torch::autograd::impl::bump_version(out);
  }
};

}  // namespace myops::torch_glue
