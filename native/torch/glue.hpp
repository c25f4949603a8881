// SPDX-License-Identifier: Apache-2.0
// From tensors to kernels: one template gives the CPU and Meta kernels of every op and pass.
#pragma once

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include <array>
#include <string>
#include <utility>

#include "checks.hpp"
#include "ops/op_table.hpp"

namespace myops::torch_glue {

template <std::size_t>
using TensorArgument = const at::Tensor&;
template <std::size_t>
using AttributeArgument = double;

inline const OpInfo& info_of(OpIndex index) {
  return *(ops().begin() + static_cast<std::size_t>(index));
}

/// Tensor arguments of a pass of a one-input op, in schema order; the op's input comes last.
constexpr std::size_t tensor_count(Pass pass) { return static_cast<std::size_t>(pass) + 1; }

inline const char* argument_name(const OpInfo& op, Pass pass, std::size_t position) {
  const std::size_t last = tensor_count(pass) - 1;
  if (position == last) return op.input_names[0];
  return position + 1 == last ? "grad_out" : "grad_grad";
}

/// "swish", "swish_backward", "swish_double_backward".
inline std::string pass_name(const OpInfo& op, Pass pass) {
  constexpr const char* suffixes[] = {"", "_backward", "_double_backward"};
  return std::string(op.torch_name) + suffixes[static_cast<std::size_t>(pass)];
}

/// Runs the kernel over flat memory on torch's own threads.
inline void run_flat(KernelFn kernel, const void* const* inputs, std::size_t input_count,
                     void* output, std::int64_t count, std::int64_t element_bytes,
                     const double* attributes) {
  constexpr std::size_t most_inputs = pass_count;
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    const void* from[most_inputs];
    for (std::size_t i = 0; i < input_count; ++i) {
      from[i] = static_cast<const char*>(inputs[i]) + begin * element_bytes;
    }
    void* to[] = {static_cast<char*>(output) + begin * element_bytes};
    kernel(from, to, end - begin, attributes);
  };
  const TaskPlan plan = plan_tasks(count, at::get_num_threads());
  if (plan.tasks == 1) {
    range(0, count);
  } else if (plan.tasks > 1) {
    at::parallel_for(0, count, plan.grain, range);
  }
}

/// Whether flat memory of `tensor` runs in the order of `like`'s flat memory.
inline bool same_order(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.strides() == like.strides() && tensor.is_non_overlapping_and_dense();
}

template <OpIndex index, Pass pass, class Tensors = std::make_index_sequence<tensor_count(pass)>,
          class Attributes =
              std::make_index_sequence<FunctorOf<index, float>::type::attributes.size()>>
struct Glue;

template <OpIndex index, Pass pass, std::size_t... T, std::size_t... A>
struct Glue<index, pass, std::index_sequence<T...>, std::index_sequence<A...>> {
  using Signature = at::Tensor(TensorArgument<T>..., AttributeArgument<A>...);
  using OutSignature = void(TensorArgument<T>..., AttributeArgument<A>..., const at::Tensor&);
  static constexpr std::size_t last = sizeof...(T) - 1;

  static void check(const std::array<const at::Tensor*, sizeof...(T)>& tensors) {
    const OpInfo& op = info_of(index);
    const at::Tensor& x = *tensors[last];
    check_tensor(op, argument_name(op, pass, last), x);
    for (std::size_t i = 0; i < last; ++i) {
      check_matches(op, argument_name(op, pass, i), *tensors[i], argument_name(op, pass, last), x);
    }
  }

  /// Fills `out`, which is dense, in the order of its own strides.
  static void compute(const std::array<const at::Tensor*, sizeof...(T)>& tensors,
                      const double* attributes, const at::Tensor& out) {
    const OpInfo& op = info_of(index);
    const DType dtype = *dtype_of(out);
    at::Tensor copies[sizeof...(T)];
    const void* inputs[sizeof...(T)];
    for (std::size_t i = 0; i < sizeof...(T); ++i) {
      const at::Tensor* tensor = tensors[i];
      if (!same_order(*tensor, out)) {
        copies[i] = at::empty_like(out).copy_(*tensor);
        tensor = &copies[i];
      }
      inputs[i] = tensor->const_data_ptr();
    }
    run_flat(cpu_kernel(op, pass, dtype), inputs, sizeof...(T), out.mutable_data_ptr(), out.numel(),
             static_cast<std::int64_t>(element_size(dtype)), attributes);
  }

  static at::Tensor cpu(TensorArgument<T>... tensors, AttributeArgument<A>... attributes) {
    const std::array<const at::Tensor*, sizeof...(T)> arguments{&tensors...};
    const double values[] = {attributes..., 0.0};
    check(arguments);
    check_call(info_of(index), values);
    at::Tensor out = at::empty_like(*arguments[last]);
    compute(arguments, values, out);
    return out;
  }

  static at::Tensor meta(TensorArgument<T>... tensors, AttributeArgument<A>... attributes) {
    const std::array<const at::Tensor*, sizeof...(T)> arguments{&tensors...};
    const double values[] = {attributes..., 0.0};
    check(arguments);
    check_call(info_of(index), values);
    return at::empty_like(*arguments[last]);
  }

  static void prepare_out(const std::array<const at::Tensor*, sizeof...(T)>& tensors,
                          const double* attributes, const at::Tensor& out) {
    const OpInfo& op = info_of(index);
    check(tensors);
    check_call(op, attributes);
    const at::Tensor& x = *tensors[last];
    TORCH_CHECK_TYPE(out.scalar_type() == x.scalar_type(), "[", op.torch_name,
                     "] out should have the dtype of ", op.input_names[0], ", ", dtype_text(x),
                     ". Received ", dtype_text(out), ". Allocate out with empty_like.");
    TORCH_CHECK_VALUE(out.device() == x.device(), "[", op.torch_name,
                      "] out should be on the device of ", op.input_names[0], ", ", x.device(),
                      ". Received ", out.device(), ". Allocate out with empty_like.");
    at::native::resize_output(out, x.sizes());
  }

  static void cpu_out(TensorArgument<T>... tensors, AttributeArgument<A>... attributes,
                      const at::Tensor& out) {
    const std::array<const at::Tensor*, sizeof...(T)> arguments{&tensors...};
    const double values[] = {attributes..., 0.0};
    prepare_out(arguments, values, out);
    at::assert_no_internal_overlap(out);
    bool in_place = out.is_non_overlapping_and_dense();
    for (const at::Tensor* tensor : arguments) {
      at::assert_no_partial_overlap(out, *tensor);
      // Same memory in another order would be overwritten before it is read.
      if (tensor->is_alias_of(out) && !same_order(*tensor, out)) in_place = false;
    }
    if (in_place) {
      compute(arguments, values, out);
    } else {
      at::Tensor dense = at::empty_like(*arguments[last]);
      compute(arguments, values, dense);
      out.copy_(dense);
    }
  }

  static void meta_out(TensorArgument<T>... tensors, AttributeArgument<A>... attributes,
                       const at::Tensor& out) {
    const double values[] = {attributes..., 0.0};
    prepare_out({&tensors...}, values, out);
  }
};

}  // namespace myops::torch_glue
