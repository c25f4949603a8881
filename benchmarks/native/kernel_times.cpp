// SPDX-License-Identifier: Apache-2.0
// Times every op, pass and floating-point type of the kernel library on the ISAs named as
// arguments, one thread, in the cache, and prints JSON. No host takes part.
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "myops/kernels.hpp"

namespace {

using myops::DType;
using myops::OpInfo;
using myops::Pass;

// Eight arrays of float64 stay inside a second-level cache.
constexpr std::int64_t count = 2048;
constexpr double min_sample_seconds = 100e-6;
constexpr const char* pass_names[myops::pass_count] = {"forward", "backward", "double_backward"};

std::size_t inputs_of(const OpInfo& op, Pass pass) {
  const std::size_t n = op.input_count;
  return pass == Pass::forward ? n : pass == Pass::backward ? n + 1 : 2 * n + 1;
}

std::size_t outputs_of(const OpInfo& op, Pass pass) {
  const std::size_t n = op.input_count;
  return pass == Pass::forward ? 1 : pass == Pass::backward ? n : n + 1;
}

template <typename T>
double seconds_per_element(myops::KernelFn kernel, const OpInfo& op, Pass pass) {
  std::mt19937 generator(0);
  std::normal_distribution<double> normal;
  std::vector<std::vector<T>> arrays(inputs_of(op, pass) + outputs_of(op, pass));
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    arrays[i].resize(count);
    for (T& value : arrays[i]) value = static_cast<T>(normal(generator));
    if (i < inputs_of(op, pass)) {
      inputs.push_back(arrays[i].data());
    } else {
      outputs.push_back(arrays[i].data());
    }
  }
  std::vector<double> attributes;
  for (std::size_t i = 0; i < op.attribute_count; ++i) {
    attributes.push_back(op.attributes[i].default_value);
  }
  const auto call = [&] {
    kernel(inputs.data(), outputs.data(), count, attributes.data(), myops::Placement::cache);
  };
  call();
  using Clock = std::chrono::steady_clock;
  std::int64_t calls = 0;
  const auto start = Clock::now();
  std::chrono::duration<double> passed{0};
  while (passed.count() < min_sample_seconds) {
    call();
    ++calls;
    passed = Clock::now() - start;
  }
  return passed.count() / static_cast<double>(calls * count);
}

}  // namespace

int main(int argc, char** argv) {
  const char* separator = "[";
  for (int i = 1; i < argc; ++i) {
    for (const OpInfo& op : myops::ops()) {
      for (std::size_t p = 0; p < myops::pass_count; ++p) {
        const Pass pass = static_cast<Pass>(p);
        for (const DType dtype : {DType::f32, DType::f64}) {
          const myops::KernelFn kernel = myops::cpu_kernel_for_isa(argv[i], op, pass, dtype);
          if (kernel == nullptr) continue;
          const double seconds = dtype == DType::f32
                                     ? seconds_per_element<float>(kernel, op, pass)
                                     : seconds_per_element<double>(kernel, op, pass);
          std::printf(
              "%s\n{\"isa\": \"%s\", \"op\": \"%s\", \"pass\": \"%s\", \"dtype\": \"%s\", "
              "\"seconds\": %.6e}",
              separator, argv[i], op.name, pass_names[p], myops::dtype_name(dtype), seconds);
          separator = ",";
        }
      }
    }
  }
  std::puts(separator[0] == '[' ? "[]" : "\n]");
  return 0;
}
