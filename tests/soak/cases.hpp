// SPDX-License-Identifier: Apache-2.0
// Models of one node, inputs for them, and what the kernels make of those.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <onnxruntime_c_api.h>

#include "myops/kernels.hpp"

namespace myops::soak {

/// Attribute values the models are written with: none is a default.
std::vector<double> attribute_values(const OpInfo& op);

/// Prints a line per operator: name, kind, inputs, outputs, attributes. write_models.py reads them.
void print_operators();

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// Inputs and the outputs that are to come back, bit for bit.
struct Case {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

struct Model {
  const OpInfo* op;
  DType dtype;
  std::string path;
  std::vector<Case> cases;
};

ONNXTensorElementDataType onnx_type(DType dtype);

/// Every operator in every dtype, with random cases: scalars, empty tensors, small ones of random
/// rank, and one that is large enough for the session's threads.
std::vector<Model> make_models(const std::string& folder, std::mt19937_64& random);

}  // namespace myops::soak
