// SPDX-License-Identifier: Apache-2.0
// Equal bits: between ISAs, and between a half kernel and the f32 kernel with conversions around.
#include <cstdlib>
#include <cstring>
#include <string>

#include <doctest/doctest.h>

#include "isa_list.hpp"
#include "math/half.hpp"
#include "samples.hpp"

namespace myops::tests {
namespace {

/// The ISAs of this machine whose kernels fuse multiply and add.
std::vector<std::string> fused_isas() {
  std::vector<std::string> names;
  const IsaList list = cpu_isas();
  for (std::size_t i = 0; i < list.count; ++i) {
#if defined(__x86_64__)
    if (std::strcmp(list.name[i], "baseline") == 0) continue;
#endif
    names.push_back(list.name[i]);
  }
  return names;
}

std::size_t different(const std::vector<Buffer>& a, const std::vector<Buffer>& b) {
  std::size_t count = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    for (std::size_t i = 0; i < a[k].count(); ++i) {
      count += same_element(a[k], i, b[k], i) ? 0 : 1;
    }
  }
  return count;
}

/// Elements that differ by more than the last bit.
std::size_t further_than_neighbours(const std::vector<Buffer>& a, const std::vector<Buffer>& b) {
  std::size_t count = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    for (std::size_t i = 0; i < a[k].count(); ++i) {
      const std::uint64_t apart = a[k].bits(i) - b[k].bits(i);
      const bool near = same_element(a[k], i, b[k], i) || apart == 1 || apart + 1 == 0;
      count += near ? 0 : 1;
    }
  }
  return count;
}

float to_float(DType dtype, std::uint64_t bits) {
  const auto pattern = static_cast<std::uint16_t>(bits);
  return dtype == DType::f16 ? myops::to_float(Half{pattern}) : myops::to_float(BFloat16{pattern});
}

std::uint64_t from_float(DType dtype, float value) {
  return dtype == DType::f16 ? to_half(value).bits : to_bfloat16(value).bits;
}

}  // namespace

TEST_CASE("all ISAs with fused multiply-add give the same bits") {
  const std::vector<std::string> isas = fused_isas();
  for_each_kernel([&](const OpInfo& op, Pass pass, DType dtype) {
    const Buffer x = element_size(dtype) == 2 ? all_patterns(dtype)
                                              : spread_patterns(dtype, std::size_t(1) << 17, 11);
    for (std::size_t input = 0; input < op.input_count; ++input) {
      const std::vector<Buffer> inputs = pass_inputs(op, pass, x, input);
      for (const auto& attributes : attribute_sets(op)) {
        for (std::size_t i = 1; i < isas.size(); ++i) {
          const KernelFn one = cpu_kernel_for_isa(isas[0].c_str(), op, pass, dtype);
          const KernelFn other = cpu_kernel_for_isa(isas[i].c_str(), op, pass, dtype);
          REQUIRE((one != nullptr && other != nullptr));
          CHECK_MESSAGE(different(run(op, pass, one, inputs, attributes),
                                  run(op, pass, other, inputs, attributes)) == 0,
                        std::string(op.name), ' ', pass_name(pass), ' ',
                        std::string(dtype_name(dtype)), ": ", isas[0], " against ", isas[i]);
        }
      }
    }
  });
}

TEST_SUITE("kernel") {
  // Up to the last bit: for results that are rounded anyway an operator may compute more briefly.
  TEST_CASE("a half kernel is the f32 kernel between the portable conversions") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      if (element_size(dtype) != 2) return;
      const std::vector<Buffer> inputs = pass_inputs(op, pass, all_patterns(dtype));
      std::vector<Buffer> widened;
      for (const Buffer& input : inputs) {
        Buffer wide(DType::f32, input.count());
        for (std::size_t i = 0; i < input.count(); ++i) {
          const float value = to_float(dtype, input.bits(i));
          std::memcpy(wide.at(i), &value, sizeof value);
        }
        widened.push_back(wide);
      }
      for (const auto& attributes : attribute_sets(op)) {
        CAPTURE(describe(op, pass, dtype, attributes));
        const auto actual = run(op, pass, cpu_kernel(op, pass, dtype), inputs, attributes);
        const auto wide = run(op, pass, cpu_kernel(op, pass, DType::f32), widened, attributes);
        std::vector<Buffer> expected;
        for (const Buffer& output : wide) {
          expected.emplace_back(dtype, output.count());
          for (std::size_t i = 0; i < output.count(); ++i) {
            float value = 0;
            std::memcpy(&value, output.at(i), sizeof value);
            expected.back().set_bits(i, from_float(dtype, value));
          }
        }
        CHECK(further_than_neighbours(actual, expected) == 0);
      }
    });
  }

  TEST_CASE("the dispatcher hands out the kernels of the ISA it names") {
    for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
      const KernelFn kernel = cpu_kernel(op, pass, dtype);
      // doctest prints what it compares, and cannot print a pointer to a function.
      const bool right =
          kernel != nullptr && kernel == cpu_kernel_for_isa(cpu_isa(), op, pass, dtype);
      CHECK_MESSAGE(right, describe(op, pass, dtype, {}));
    });
  }
}

TEST_CASE("an ISA that is unknown has no kernels") {
  for_each_kernel([](const OpInfo& op, Pass pass, DType dtype) {
    CHECK((cpu_kernel_for_isa("nonsense", op, pass, dtype) == nullptr));
    CHECK((cpu_kernel_for_isa("", op, pass, dtype) == nullptr));
  });
}

TEST_CASE("the ISAs of the machine are ISAs of the build, slowest first") {
  std::vector<std::string> build;
#define MYOPS_NAME(isa) build.push_back(#isa);
  MYOPS_TEST_ISAS(MYOPS_NAME)
#undef MYOPS_NAME
  const IsaList list = cpu_isas();
  REQUIRE(list.count >= 1);
  REQUIRE(list.count <= build.size());
  for (std::size_t i = 0; i < list.count; ++i) CHECK(list.name[i] == build[i]);
}

// GCC 12 and later know the levels by name: an answer that does not depend on the dispatcher's
// list of features.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
TEST_CASE("the dispatcher finds the levels the compiler's run time finds") {
  const IsaList list = cpu_isas();
  const auto has = [&](const char* name) {
    for (std::size_t i = 0; i < list.count; ++i) {
      if (std::strcmp(list.name[i], name) == 0) return true;
    }
    return false;
  };
  CHECK(has("v3") == (__builtin_cpu_supports("x86-64-v3") != 0));
  CHECK(has("v4") == (__builtin_cpu_supports("x86-64-v4") != 0));
}
#endif

// CTest also runs this one with values of MYOPS_ISA that no machine has.
TEST_CASE("MYOPS_ISA is honoured or refused by name") {
  const char* wanted = std::getenv("MYOPS_ISA");
  const IsaList list = cpu_isas();
  bool known = wanted == nullptr || *wanted == '\0';
  for (std::size_t i = 0; !known && i < list.count; ++i)
    known = list.name[i] == std::string(wanted);
  const std::string best = list.name[list.count - 1];
  const std::string message = isa_status().message();
  CHECK(isa_status().ok() == known);
  if (!known) {
    CHECK(cpu_isa() == best);
    CHECK(message.rfind("[myops] MYOPS_ISA should be one of baseline", 0) == 0);
    CHECK(message.find(best) != std::string::npos);
    CHECK(message.find("Received \"" + std::string(wanted).substr(0, 100)) != std::string::npos);
  } else {
    CHECK(message.empty());
    CHECK(cpu_isa() == (wanted == nullptr || *wanted == '\0' ? best : wanted));
  }
}

}  // namespace myops::tests
