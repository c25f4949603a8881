// SPDX-License-Identifier: Apache-2.0
// What differs between torch releases: since 2.13 autograd nodes are held by intrusive_ptr.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <memory>

namespace myops::torch_glue {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)
template <class NodeType>
using NodePtr = c10::intrusive_ptr<NodeType>;

template <class NodeType>
NodePtr<NodeType> make_node() {
  return c10::make_intrusive<NodeType>();
}
#else
template <class NodeType>
using NodePtr = std::shared_ptr<NodeType>;

template <class NodeType>
NodePtr<NodeType> make_node() {
  return {new NodeType(), torch::autograd::deleteNode};
}
#endif

}  // namespace myops::torch_glue
