// SPDX-License-Identifier: Apache-2.0
#include "cases.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "myops/norm.hpp"

namespace myops::soak {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr int small_cases = 5;
constexpr std::int64_t large_count = 40'000;  // plan_tasks splits from 32,768 elements on

std::int64_t product(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::int64_t pick(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

/// A finite number of moderate size: other bits would only test the kernels, which have tests.
void put_number(std::mt19937_64& random, DType dtype, std::uint8_t* to) {
  const std::uint64_t bits = random();
  if (dtype == DType::f64) {
    const double value = std::ldexp(static_cast<double>(bits >> 11), -53) * 16 - 8;
    std::memcpy(to, &value, sizeof value);
  } else if (dtype == DType::f32) {
    const auto value =
        static_cast<float>(std::ldexp(static_cast<double>(bits >> 40), -24) * 16 - 8);
    std::memcpy(to, &value, sizeof value);
  } else {
    // Sign and mantissa as they come, the exponent within 2^-6 and 2^2.
    const int mantissa = dtype == DType::f16 ? 10 : 7;
    const int bias = dtype == DType::f16 ? 15 : 127;
    const auto exponent = static_cast<unsigned>(bias - 6 + static_cast<int>(bits >> 32) % 9);
    const auto value = static_cast<std::uint16_t>((bits & 0x8000U) | (exponent << mantissa) |
                                                  (bits & ((1U << mantissa) - 1)));
    std::memcpy(to, &value, sizeof value);
  }
}

Tensor random_tensor(std::mt19937_64& random, DType dtype, const Shape& shape) {
  const std::size_t size = element_size(dtype);
  Tensor tensor{shape, std::vector<std::uint8_t>(static_cast<std::size_t>(product(shape)) * size)};
  for (std::size_t at = 0; at < tensor.bytes.size(); at += size) {
    put_number(random, dtype, tensor.bytes.data() + at);
  }
  return tensor;
}

/// `tensor` repeated until it has the elements of `shape`.
Tensor repeated(const Tensor& tensor, const Shape& shape, DType dtype) {
  Tensor result{shape, {}};
  const std::size_t bytes = static_cast<std::size_t>(product(shape)) * element_size(dtype);
  while (result.bytes.size() < bytes) {
    result.bytes.insert(result.bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  return result;
}

void compute_elementwise(const OpInfo& op, DType dtype, Case& one) {
  const Shape& shape = one.inputs[0].shape;
  std::vector<Tensor> whole;
  std::vector<const void*> from;
  for (const Tensor& input : one.inputs) whole.push_back(repeated(input, shape, dtype));
  for (const Tensor& input : whole) from.push_back(input.bytes.data());
  one.outputs.push_back({shape, std::vector<std::uint8_t>(one.inputs[0].bytes.size())});
  void* to[] = {one.outputs[0].bytes.data()};
  const std::vector<double> attributes = attribute_values(op);
  cpu_kernel(op, Pass::forward, dtype)(from.data(), to, product(shape), attributes.data(),
                                       Placement::cache);
}

void compute_norm(const OpInfo& op, DType dtype, Case& one) {
  const Tensor& x = one.inputs[0];
  for (std::size_t i = 0; i < op.output_count; ++i) {
    one.outputs.push_back({x.shape, std::vector<std::uint8_t>(x.bytes.size())});
  }
  const std::int64_t count = product(x.shape);
  if (count == 0) return;
  NormForward call{};
  call.x = x.bytes.data();
  call.residual = op.input_count == 3 ? one.inputs[1].bytes.data() : nullptr;
  call.weight = one.inputs.back().bytes.data();
  call.y = one.outputs[0].bytes.data();
  call.sum = op.output_count == 2 ? one.outputs[1].bytes.data() : nullptr;
  call.width = x.shape.back();
  call.rows = count / call.width;
  const std::vector<double> attributes = attribute_values(op);
  std::copy(attributes.begin(), attributes.end(), call.attributes);
  norm_kernels(op, dtype).forward(call);
}

Shape random_shape(std::mt19937_64& random, std::int64_t least_rank) {
  Shape shape;
  for (std::int64_t rank = pick(random, least_rank, 6); rank > 0; --rank) {
    shape.push_back(pick(random, 0, 9) == 0 ? 0 : pick(random, 1, 7));
  }
  return shape;
}

Case make_case(const OpInfo& op, DType dtype, bool norm, const Shape& shape,
               std::mt19937_64& random) {
  Case one;
  for (std::size_t i = 0; i < op.input_count; ++i) {
    const bool weight = norm && i + 1 == op.input_count;
    const bool broadcast = op.broadcasts && i > 0 && !shape.empty() && pick(random, 0, 1) == 1;
    one.inputs.push_back(
        random_tensor(random, dtype, weight || broadcast ? Shape{shape.back()} : shape));
  }
  norm ? compute_norm(op, dtype, one) : compute_elementwise(op, dtype, one);
  return one;
}

void add_models(OpList list, bool norm, const std::string& folder, std::mt19937_64& random,
                std::vector<Model>& models) {
  for (const OpInfo& op : list) {
    for (std::size_t i = 0; i < dtype_count; ++i) {
      const auto dtype = static_cast<DType>(i);
      Model model{&op, dtype, folder + "/" + op.name + "." + dtype_name(dtype) + ".onnx", {}};
      std::vector<Shape> shapes{{0}, {3, 0, 2}, {large_count / 100 + pick(random, 0, 99), 100}};
      if (!norm) shapes.push_back({});  // a row has one dim at least
      for (int n = 0; n < small_cases; ++n) shapes.push_back(random_shape(random, norm ? 1 : 0));
      for (const Shape& shape : shapes) {
        model.cases.push_back(make_case(op, dtype, norm, shape, random));
      }
      models.push_back(std::move(model));
    }
  }
}

void print_operators(OpList list, const char* kind) {
  for (const OpInfo& op : list) {
    std::printf("%s %s %zu %zu", op.name, kind, op.input_count, op.output_count);
    const std::vector<double> values = attribute_values(op);
    for (std::size_t i = 0; i < op.attribute_count; ++i) {
      std::printf(" %s=%.9g", op.attributes[i].name, values[i]);
    }
    std::printf("\n");
  }
}

}  // namespace

std::vector<double> attribute_values(const OpInfo& op) {
  std::vector<double> values;
  for (std::size_t i = 0; i < op.attribute_count; ++i) {
    // A node holds float32.
    values.push_back(static_cast<float>(op.attributes[i].default_value * 1.75 + 0.125));
  }
  return values;
}

void print_operators() {
  print_operators(ops(), "elementwise");
  print_operators(norm_ops(), "norm");
}

ONNXTensorElementDataType onnx_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    case DType::f64: return ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE;
    case DType::f16: return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    case DType::bf16: return ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

std::vector<Model> make_models(const std::string& folder, std::mt19937_64& random) {
  std::vector<Model> models;
  add_models(ops(), false, folder, random, models);
  add_models(norm_ops(), true, folder, random, models);
  return models;
}

}  // namespace myops::soak
