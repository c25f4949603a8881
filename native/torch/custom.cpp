// SPDX-License-Identifier: Apache-2.0
// Operators that are a function over whole tensors: CPU, Meta and autograd, boxed, since their
// arguments are not known to the compiler. float16 and bfloat16 are computed in float32 and rounded
// once. The backward operator has no derivative of its own.
#include "myops/custom.hpp"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <sstream>

#include "checks.hpp"
#include "compat.hpp"
#include "devices.hpp"
#include "norm.hpp"
#include "schema.hpp"
#include MYOPS_OP_LIST

namespace myops::torch_glue {
namespace {

using torch::autograd::variable_list;
using torch::jit::Stack;

using KnownShapesFn = Status (*)(const Sizes<std::int64_t>*, const double*, Sizes<std::int64_t>*);
using SymShapesFn = Status (*)(const Sizes<c10::SymInt>*, const double*, Sizes<c10::SymInt>*);

#define MYOPS_SHAPES(Name, torch_name) Name::shapes<std::int64_t>,
constexpr KnownShapesFn known_shapes[] = {MYOPS_CUSTOM_OPS(MYOPS_SHAPES)};
#undef MYOPS_SHAPES
#define MYOPS_SHAPES(Name, torch_name) Name::shapes<c10::SymInt>,
constexpr SymShapesFn sym_shapes[] = {MYOPS_CUSTOM_OPS(MYOPS_SHAPES)};
#undef MYOPS_SHAPES

enum class Direction { forward, backward };

/// A call's tensors and attribute values, taken from the stack.
struct Call {
  std::vector<at::Tensor> gradients;  // of the outputs, where backward
  std::vector<at::Tensor> inputs;
  std::vector<double> attributes;

  Call(const OpInfo& op, Direction direction, const Stack& stack) {
    const std::size_t first = direction == Direction::backward ? op.output_count : 0;
    const std::size_t total = first + op.input_count + op.attribute_count;
    const std::size_t bottom = stack.size() - total;
    for (std::size_t i = 0; i < total; ++i) {
      const c10::IValue& value = stack[bottom + i];
      if (i < first) {
        gradients.push_back(value.toTensor());
      } else if (i < first + op.input_count) {
        inputs.push_back(value.toTensor());
      } else {
        attributes.push_back(value.toDouble());
      }
    }
    attributes.push_back(0);  // never empty
  }

  void check(const OpInfo& op) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_tensor(op, op.input_names[i], inputs[i]);
      TORCH_CHECK_TYPE(inputs[i].scalar_type() == inputs[0].scalar_type(), "[", op.torch_name, "] ",
                       op.input_names[i], " should have the dtype of ", op.input_names[0], ", ",
                       dtype_text(inputs[0]), ". Received ", dtype_text(inputs[i]),
                       ". Convert one of them.");
      TORCH_CHECK_VALUE(inputs[i].device() == inputs[0].device(), "[", op.torch_name, "] ",
                        op.input_names[i], " should be on the device of ", op.input_names[0],
                        ". Received ", inputs[i].device(), ". Move one of them with .to().");
    }
    const Status status = check_attributes(op, attributes.data());
    TORCH_CHECK_VALUE(status.ok(), status.message());
  }

  template <class Int, class Function>
  std::vector<Sizes<Int>> output_sizes(const OpInfo& op, Function shapes) const {
    std::vector<Sizes<Int>> in;
    for (const at::Tensor& input : inputs) {
      if constexpr (std::is_same_v<Int, c10::SymInt>) {
        in.emplace_back(input.sym_sizes().begin(), input.sym_sizes().end());
      } else {
        in.emplace_back(input.sizes().begin(), input.sizes().end());
      }
    }
    std::vector<Sizes<Int>> out(op.output_count);
    const Status status = shapes(in.data(), attributes.data(), out.data());
    TORCH_CHECK_VALUE(status.ok(), status.message());
    return out;
  }
};

TensorView view_of(const at::Tensor& tensor, bool writable) {
  return {*dtype_of(tensor),
          writable ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr()),
          static_cast<std::size_t>(tensor.dim()), tensor.sizes().data(), tensor.strides().data()};
}

at::Tensor widened(const at::Tensor& tensor) {
  return element_size(*dtype_of(tensor)) == 2 ? tensor.to(at::kFloat) : tensor;
}

void finish(Stack& stack, std::size_t arguments, const std::vector<at::Tensor>& results) {
  torch::jit::drop(stack, arguments);
  for (const at::Tensor& result : results) stack.emplace_back(result);
}

std::size_t argument_count(const OpInfo& op, Direction direction) {
  return op.input_count + op.attribute_count +
         (direction == Direction::backward ? op.output_count : 0);
}

struct OnCpu : public c10::OperatorKernel {
  const OpInfo* op;
  Direction direction;

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call(*op, direction, *stack);
    call.check(*op);
    const auto sizes = call.output_sizes<std::int64_t>(*op, known_shapes[op->index]);
    std::vector<at::Tensor> in;
    std::vector<at::Tensor> out;
    for (std::size_t i = 0; i < call.gradients.size(); ++i) {
      TORCH_CHECK_VALUE(call.gradients[i].sizes().equals(sizes[i]), "[", op->torch_name,
                        "_backward] grad_", op->output_names[i], " should have shape ",
                        at::IntArrayRef(sizes[i]), ". Received ", call.gradients[i].sizes(),
                        ". Pass the gradient of that output.");
      in.push_back(widened(call.gradients[i]));
    }
    for (const at::Tensor& input : call.inputs) in.push_back(widened(input));
    const at::TensorOptions options = in.back().options();
    if (direction == Direction::forward) {
      for (const auto& size : sizes) out.push_back(at::empty(size, options));
    } else {
      for (const at::Tensor& input : call.inputs) {
        out.push_back(at::empty(input.sizes(), options));
      }
    }
    std::vector<TensorView> from;
    std::vector<TensorView> to;
    for (const at::Tensor& tensor : in) from.push_back(view_of(tensor, false));
    for (const at::Tensor& tensor : out) to.push_back(view_of(tensor, true));
    const CustomFn function =
        direction == Direction::forward ? custom_forward(*op) : custom_backward(*op);
    check_status(function(from.data(), to.data(), call.attributes.data()));
    for (at::Tensor& tensor : out) tensor = tensor.to(call.inputs[0].scalar_type());
    finish(*stack, argument_count(*op, direction), out);
  }
};

struct OnMeta : public c10::OperatorKernel {
  const OpInfo* op;
  Direction direction;

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call(*op, direction, *stack);
    call.check(*op);
    std::vector<at::Tensor> out;
    if (direction == Direction::forward) {
      for (const auto& size : call.output_sizes<c10::SymInt>(*op, sym_shapes[op->index])) {
        out.push_back(at::empty_symint(size, call.inputs[0].options()));
      }
    } else {
      for (const at::Tensor& input : call.inputs) {
        out.push_back(at::empty_symint(input.sym_sizes(), input.options()));
      }
    }
    finish(*stack, argument_count(*op, direction), out);
  }
};

std::string name_of(const OpInfo& op, Direction direction) {
  return op.torch_name + std::string(direction == Direction::backward ? "_backward" : "");
}

/// Outputs to inputs.
struct FunctionNode : public torch::autograd::Node {
  const OpInfo* op = nullptr;
  std::vector<torch::autograd::SavedVariable> inputs;
  std::vector<double> attributes;
  std::vector<at::Tensor> zeros;  // for outputs without a gradient: expanded scalars

  std::string name() const override { return op->name + std::string("Backward"); }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& variable : inputs) variable.reset_data();
  }

  variable_list apply(variable_list&& cotangents) override {
    std::lock_guard<std::mutex> lock(mutex_);
    Stack stack;
    for (std::size_t i = 0; i < op->output_count; ++i) {
      stack.emplace_back(cotangents[i].defined() ? cotangents[i] : zeros[i]);
    }
    for (auto& variable : inputs) stack.emplace_back(variable.unpack());
    for (std::size_t i = 0; i < op->attribute_count; ++i) stack.emplace_back(attributes[i]);
    const std::string full = MYOPS_NAMESPACE "::" + name_of(*op, Direction::backward);
    c10::Dispatcher::singleton().findSchemaOrThrow(full.c_str(), "").callBoxed(stack);
    variable_list results;
    for (const c10::IValue& value : stack) results.push_back(value.toTensor());
    return results;
  }
};

struct OnAutograd : public c10::OperatorKernel {
  const OpInfo* op;
  Direction direction;

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
    const Call call(*op, direction, *stack);
    bool differentiated = false;
    for (const auto* tensors : {&call.gradients, &call.inputs}) {
      for (const at::Tensor& tensor : *tensors) {
        differentiated = differentiated || torch::autograd::compute_requires_grad(tensor);
        TORCH_CHECK_NOT_IMPLEMENTED(!torch::autograd::isFwGradDefined(tensor), "[", op->torch_name,
                                    "] derivatives are those of reverse mode. Received a tensor "
                                    "with a tangent. Use torch.autograd.grad.");
      }
    }
    TORCH_CHECK_NOT_IMPLEMENTED(!differentiated || direction == Direction::forward, "[",
                                op->torch_name,
                                "] the first derivative is defined. Received a request for the "
                                "second. Compose the function from torch operators for that.");
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      handle.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
    if (!differentiated) return;
    auto node = make_node<FunctionNode>();
    node->set_next_edges(torch::autograd::collect_next_edges(call.inputs));
    node->op = op;
    node->attributes = call.attributes;
    for (const at::Tensor& input : call.inputs) node->inputs.emplace_back(input, false);
    const std::size_t bottom = stack->size() - op->output_count;
    for (std::size_t i = 0; i < op->output_count; ++i) {
      const at::Tensor result = (*stack)[bottom + i].toTensor();
      node->zeros.push_back(at::zeros({}, result.options()).expand_symint(result.sym_sizes()));
      torch::autograd::set_history(result, node);
    }
  }
};

std::string schema(const OpInfo& op, Direction direction) {
  std::ostringstream text;
  const bool backward = direction == Direction::backward;
  text << name_of(op, direction) << "(";
  const char* separator = "";
  for (std::size_t i = 0; backward && i < op.output_count; ++i, separator = ", ") {
    text << separator << "Tensor grad_" << op.output_names[i];
  }
  for (std::size_t i = 0; i < op.input_count; ++i, separator = ", ") {
    text << separator << "Tensor " << op.input_names[i];
  }
  text << attribute_arguments(op);
  const std::size_t results = backward ? op.input_count : op.output_count;
  text << ") -> (Tensor";
  for (std::size_t i = 1; i < results; ++i) text << ", Tensor";
  text << ")";
  return text.str();
}

template <class Kernel>
torch::CppFunction boxed(const OpInfo& op, Direction direction) {
  auto kernel = std::make_unique<Kernel>();
  kernel->op = &op;
  kernel->direction = direction;
  return torch::CppFunction::makeFromBoxedFunctor(std::move(kernel));
}

}  // namespace

// The list of operators of this library holds functions over whole tensors only.
void define_norms(torch::Library& library) {
  for (const OpInfo& op : ops()) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::string name = name_of(op, direction);
      library.def(schema(op, direction).c_str(), {at::Tag::pt2_compliant_tag});
      library.impl(name.c_str(), torch::dispatch(c10::kCPU, boxed<OnCpu>(op, direction)));
      library.impl(name.c_str(),
                   torch::dispatch(c10::DispatchKey::Meta, boxed<OnMeta>(op, direction)));
      library.impl(name.c_str(),
                   torch::dispatch(c10::DispatchKey::Autograd, boxed<OnAutograd>(op, direction)));
    }
  }
}

}  // namespace myops::torch_glue
