// SPDX-License-Identifier: Apache-2.0
// The op list, attribute checks and Status.
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "myops/kernels.hpp"

namespace myops::tests {
namespace {

std::string lower_case_letters(const char* name) {
  std::string letters;
  for (const char* c = name; *c != '\0'; ++c) {
    if (*c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  }
  return letters;
}

std::vector<double> defaults(const OpInfo& op) {
  std::vector<double> values;
  for (std::size_t i = 0; i < op.attribute_count; ++i) {
    values.push_back(op.attributes[i].default_value);
  }
  return values;
}

}  // namespace

TEST_CASE("names are unique, and spelt the same way in ONNX and torch") {
  std::set<std::string> names;
  std::set<std::string> torch_names;
  std::size_t index = 0;
  for (const OpInfo& op : ops()) {
    CAPTURE(std::string(op.name));
    CHECK(names.insert(op.name).second);
    CHECK(torch_names.insert(op.torch_name).second);
    CHECK(op.index == index++);
    CHECK(std::isupper(static_cast<unsigned char>(op.name[0])) != 0);
    for (const char* c = op.torch_name; *c != '\0'; ++c) {
      const auto letter = static_cast<unsigned char>(*c);
      CHECK((std::islower(letter) != 0 || std::isdigit(letter) != 0 || *c == '_'));
    }
    CHECK(lower_case_letters(op.name) == lower_case_letters(op.torch_name));
  }
  CHECK(index == ops().count);
  CHECK(index > 0);
}

TEST_CASE("inputs and attributes are named, once each, with usable defaults") {
  for (const OpInfo& op : ops()) {
    CAPTURE(std::string(op.name));
    CHECK(op.input_count >= 1);
    std::set<std::string> names;
    for (std::size_t i = 0; i < op.input_count; ++i) {
      REQUIRE(op.input_names[i] != nullptr);
      CHECK(names.insert(op.input_names[i]).second);
    }
    for (std::size_t i = 0; i < op.attribute_count; ++i) {
      REQUIRE(op.attributes[i].name != nullptr);
      CHECK(names.insert(op.attributes[i].name).second);
    }
    CHECK(names.count("") == 0);
    CHECK(check_attributes(op, defaults(op).data()).ok());
  }
}

TEST_CASE("find_op finds every op and nothing else") {
  for (const OpInfo& op : ops()) {
    CHECK(find_op(op.name) == &op);
    CHECK(find_op(op.torch_name) == nullptr);
    const std::string name = op.name;
    CHECK(find_op(name + "X") == nullptr);
    CHECK(find_op(name.substr(0, name.size() - 1)) == nullptr);
    // A view that no terminating zero follows.
    CHECK(find_op(std::string_view(name + "X").substr(0, name.size())) == &op);
  }
  CHECK(find_op("") == nullptr);
  CHECK(find_op("NoSuchOp") == nullptr);
}

TEST_CASE("attributes must be finite; the error names op, attribute and value") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const OpInfo& op : ops()) {
    for (std::size_t i = 0; i < op.attribute_count; ++i) {
      std::vector<double> values = defaults(op);
      for (const auto& [value, text] : {std::pair<double, const char*>{std::nan(""), "nan"},
                                        {infinity, "inf"},
                                        {-infinity, "-inf"}}) {
        values[i] = value;
        const Status status = check_attributes(op, values.data());
        CHECK_FALSE(status.ok());
        CHECK(std::string(status.message()) ==
              "[" + std::string(op.torch_name) + "] " + op.attributes[i].name +
                  " should be finite. Received " + text + ". Pass a finite number.");
      }
      for (const double value : {0.0, -0.0, std::numeric_limits<double>::max(),
                                 std::numeric_limits<double>::denorm_min()}) {
        values[i] = value;
        CHECK(check_attributes(op, values.data()).ok());
      }
    }
  }
}

TEST_CASE("a dtype has one name and its size") {
  CHECK(std::string(dtype_name(DType::f32)) == "float32");
  CHECK(std::string(dtype_name(DType::f64)) == "float64");
  CHECK(std::string(dtype_name(DType::f16)) == "float16");
  CHECK(std::string(dtype_name(DType::bf16)) == "bfloat16");
  CHECK(element_size(DType::f32) == 4);
  CHECK(element_size(DType::f64) == 8);
  CHECK(element_size(DType::f16) == 2);
  CHECK(element_size(DType::bf16) == 2);
}

TEST_CASE("a status holds its message, cut where it does not fit") {
  const Status fine;
  CHECK(fine.ok());
  CHECK(std::strlen(fine.message()) == 0);
  const Status failed = Status::error("[%s] %d", "where", 42);
  CHECK_FALSE(failed.ok());
  CHECK(std::string(failed.message()) == "[where] 42");
  for (const std::size_t length : {510u, 511u, 512u, 513u, 5000u}) {
    const std::string text(length, 'x');
    const Status status = Status::error("%s", text.c_str());
    CHECK_FALSE(status.ok());
    CHECK(std::string(status.message()) == text.substr(0, 511));
    const Status copy = status;
    CHECK(std::string(copy.message()) == status.message());
  }
}

TEST_CASE("a build without CUDA says so and what to do") {
  const Status status = cuda_status();
  if (status.ok()) return;
  const std::string message = status.message();
  CHECK(message.rfind("[myops] ", 0) == 0);
  CHECK(message.find("Received") != std::string::npos);
}

}  // namespace myops::tests
