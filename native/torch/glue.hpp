// SPDX-License-Identifier: Apache-2.0
// One template gives the CPU and Meta kernels of every op and pass.
#pragma once

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include <array>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "checks.hpp"
#include "devices.hpp"
#include "ops/op_table.hpp"
#include "watch.hpp"

namespace myops::torch_glue {

template <std::size_t>
using TensorArgument = const at::Tensor&;
template <std::size_t>
using TensorResult = at::Tensor;
template <std::size_t>
using AttributeArgument = double;

inline const OpInfo& info_of(OpIndex index) {
  return *(ops().begin() + static_cast<std::size_t>(index));
}

template <OpIndex index>
using Functor = typename FunctorOf<index, float>::type;

template <OpIndex index>
inline constexpr std::size_t input_count = Functor<index>::inputs.size();
template <OpIndex index>
inline constexpr std::size_t attribute_count = Functor<index>::attributes.size();

/// Whether the op's inputs after the first may have fewer elements. Derivatives are computed at
/// expanded inputs, so the other passes are strict.
template <OpIndex index, Pass pass>
inline constexpr bool broadcasts = pass == Pass::forward && op_broadcasts<Functor<index>>;

/// Tensor arguments of a pass, in schema order; the op's inputs come last.
constexpr std::size_t tensor_count(std::size_t inputs, Pass pass) {
  return pass == Pass::forward ? inputs : pass == Pass::backward ? inputs + 1 : 2 * inputs + 1;
}
constexpr std::size_t result_count(std::size_t inputs, Pass pass) {
  return pass == Pass::forward ? 1 : inputs;
}

/// "x", "grad_out", or for the gradient of the gradient of x "grad_grad_x".
inline std::string argument_name(const OpInfo& op, Pass pass, std::size_t position) {
  const std::size_t first_input = tensor_count(op.input_count, pass) - op.input_count;
  if (position >= first_input) return op.input_names[position - first_input];
  if (position + 1 == first_input) return "grad_out";
  return std::string("grad_grad_") + op.input_names[position];
}

/// "out", or where a pass has several results "out_x" for that of input x.
inline std::string out_name(const OpInfo& op, Pass pass, std::size_t result) {
  if (result_count(op.input_count, pass) == 1) return "out";
  return std::string("out_") + op.input_names[result];
}

/// "swish", "swish_backward", "swish_double_backward".
inline std::string pass_name(const OpInfo& op, Pass pass) {
  constexpr const char* suffixes[] = {"", "_backward", "_double_backward"};
  return std::string(op.torch_name) + suffixes[static_cast<std::size_t>(pass)];
}

template <std::size_t... R>
auto result_type(std::index_sequence<R...>) {
  if constexpr (sizeof...(R) == 1) {
    return at::Tensor();
  } else {
    return std::tuple<TensorResult<R>...>();
  }
}

/// One tensor, or a tuple of several, as torch schemas return them.
template <OpIndex index, Pass pass>
using Result =
    decltype(result_type(std::make_index_sequence<result_count(input_count<index>, pass)>{}));

template <std::size_t m>
auto to_result(const std::array<at::Tensor, m>& tensors) {
  if constexpr (m == 1) {
    return tensors[0];
  } else {
    return std::tuple_cat(tensors);
  }
}

inline std::array<at::Tensor, 1> to_array(const at::Tensor& tensor) { return {tensor}; }
template <class... Tensors>
std::array<at::Tensor, sizeof...(Tensors)> to_array(const std::tuple<Tensors...>& tensors) {
  return std::apply(
      [](const auto&... each) { return std::array<at::Tensor, sizeof...(each)>{each...}; },
      tensors);
}

template <OpIndex index, Pass pass,
          class Tensors = std::make_index_sequence<tensor_count(input_count<index>, pass)>,
          class Attributes = std::make_index_sequence<attribute_count<index>>,
          class Results = std::make_index_sequence<result_count(input_count<index>, pass)>>
struct Glue;

template <OpIndex index, Pass pass, std::size_t... T, std::size_t... A, std::size_t... R>
struct Glue<index, pass, std::index_sequence<T...>, std::index_sequence<A...>,
            std::index_sequence<R...>> {
  using Signature = Result<index, pass>(TensorArgument<T>..., AttributeArgument<A>...);
  using OutSignature = void(TensorArgument<T>..., AttributeArgument<A>..., TensorArgument<R>...);
  static constexpr std::size_t n = sizeof...(T);
  static constexpr std::size_t m = sizeof...(R);
  using Arguments = TensorRefs<n>;
  using Outputs = std::array<at::Tensor, m>;

  /// The first input: shape, dtype, device and memory format of the results are its own.
  static const at::Tensor& reference(const Arguments& tensors) {
    return *tensors[n - input_count<index>];
  }

  static void check(const Arguments& tensors, const double* attributes) {
    const OpInfo& op = info_of(index);
    const at::Tensor& x = reference(tensors);
    check_tensor(op, op.input_names[0], x);
    for (std::size_t i = 0; i < n; ++i) {
      if (tensors[i] != &x && !matches(*tensors[i], x)) {
        check_matches(op, argument_name(op, pass, i).c_str(), *tensors[i], op.input_names[0], x,
                      broadcasts<index, pass>);
      }
    }
    check_call(op, attributes);
  }

  /// Runs the kernel, on views of the first input's shape where a checked input has another one.
  template <class Device>
  static void compute(const Arguments& tensors, const Outputs& outputs, const double* attributes) {
    Arguments arguments = tensors;
    std::array<at::Tensor, n> views;
    if constexpr (broadcasts<index, pass>) {
      for (std::size_t i = 1; i < n; ++i) {
        if (tensors[i]->sizes() == tensors[0]->sizes()) continue;
        views[i] = tensors[i]->expand(tensors[0]->sizes());
        arguments[i] = &views[i];
      }
    }
    Device::template run<n, m>(info_of(index), pass, arguments, outputs, attributes);
    if (Device::checks_finite()) watch_results(arguments, outputs);
  }

  static void watch_results(const Arguments& arguments, const Outputs& outputs) {
    const OpInfo& op = info_of(index);
    watch(pass_name(op, pass), {{argument_name(op, pass, T), *arguments[T]}...},
          {{out_name(op, pass, R), outputs[R]}...});
  }

  static Outputs allocate(const Arguments& tensors) {
    return {((void)R, at::empty_like(reference(tensors)))...};
  }

  template <class Device>
  static Result<index, pass> on(TensorArgument<T>... tensors, AttributeArgument<A>... attributes) {
    const Arguments arguments{&tensors...};
    const double values[] = {attributes..., 0.0};
    check(arguments, values);
    const Outputs outputs = allocate(arguments);
    compute<Device>(arguments, outputs, values);
    return to_result(outputs);
  }

  static Result<index, pass> meta(TensorArgument<T>... tensors,
                                  AttributeArgument<A>... attributes) {
    const Arguments arguments{&tensors...};
    const double values[] = {attributes..., 0.0};
    check(arguments, values);
    return to_result(allocate(arguments));
  }

  /// Checks everything, then gives each of `out` the shape of the results.
  static void prepare_out(const Arguments& tensors, const double* attributes, const Outputs& out) {
    const OpInfo& op = info_of(index);
    check(tensors, attributes);
    const at::Tensor& x = reference(tensors);
    for (std::size_t i = 0; i < m; ++i) {
      check_out(op, out_name(op, pass, i).c_str(), out[i], op.input_names[0], x);
    }
    for (const at::Tensor& each : out) at::native::resize_output(each, x.sizes());
  }

  template <class Device>
  static void on_out(TensorArgument<T>... tensors, AttributeArgument<A>... attributes,
                     TensorArgument<R>... out) {
    const Arguments arguments{&tensors...};
    const double values[] = {attributes..., 0.0};
    Outputs targets{out...};
    prepare_out(arguments, values, targets);
    bool in_place = true;
    for (std::size_t i = 0; i < m; ++i) {
      at::assert_no_internal_overlap(targets[i]);
      for (std::size_t j = 0; j < i; ++j) at::assert_no_overlap(targets[i], targets[j]);
      for (const at::Tensor* tensor : arguments) {
        at::assert_no_partial_overlap(targets[i], *tensor);
        // Same memory in another order would be overwritten before it is read.
        if (tensor->is_alias_of(targets[i]) && !same_order(*tensor, targets[i])) in_place = false;
      }
    }
    const Outputs outputs = in_place ? targets : allocate(arguments);
    compute<Device>(arguments, outputs, values);
    if (!in_place) (targets[R].copy_(outputs[R]), ...);
  }

  static void meta_out(TensorArgument<T>... tensors, AttributeArgument<A>... attributes,
                       TensorArgument<R>... out) {
    const double values[] = {attributes..., 0.0};
    prepare_out({&tensors...}, values, {out...});
  }
};

}  // namespace myops::torch_glue
