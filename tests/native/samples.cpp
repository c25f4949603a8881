// SPDX-License-Identifier: Apache-2.0
#include "samples.hpp"

#include <cstring>
#include <sstream>

namespace myops::tests {

std::string pass_name(Pass pass) {
  constexpr const char* names[pass_count] = {"forward", "backward", "double_backward"};
  return names[static_cast<std::size_t>(pass)];
}

Buffer spread_patterns(DType dtype, std::size_t count, std::uint64_t phase) {
  const int width = format_of(dtype).width();
  const std::uint64_t last = ~std::uint64_t(0) >> (64 - width);
  // Odd, so that the low bits take all values, too.
  const std::uint64_t stride = (last / count) | 1;
  Buffer patterns(dtype, count);
  for (std::size_t i = 0; i < count; ++i) patterns.set_bits(i, (phase + i * stride) & last);
  return patterns;
}

Buffer spread_values(DType dtype, Interval interval, std::size_t count) {
  Buffer values(dtype, count);
  const long double step = (interval.high - interval.low) / static_cast<long double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    values.set(i, interval.low + step * static_cast<long double>(i));
  }
  return values;
}

Buffer all_patterns(DType dtype) {
  Buffer patterns(dtype, 65536);
  for (std::size_t i = 0; i < 65536; ++i) patterns.set_bits(i, i);
  return patterns;
}

Buffer buffer_of(DType dtype, const std::vector<long double>& values) {
  Buffer buffer(dtype, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) buffer.set(i, values[i]);
  return buffer;
}

std::vector<Buffer> pass_inputs(Pass pass, const Buffer& x) {
  // Short in every format. The periods are coprime, so all pairs occur.
  constexpr long double gradients[2][7] = {{1, -1, 0.75L, 3, -1.5L, 0.625L, -2},
                                           {1, 1.25L, -1, 2.5L, -0.875L, 1, 1}};
  std::vector<Buffer> inputs;
  for (std::size_t k = 0; k < static_cast<std::size_t>(pass); ++k) {
    const std::size_t period = 7 - k * 2;
    Buffer gradient(x.dtype(), x.count());
    std::uint64_t bits[7];
    for (std::size_t i = 0; i < period; ++i) {
      bits[i] = round_to(format_of(x.dtype()), gradients[k][i]);
    }
    for (std::size_t i = 0; i < x.count(); ++i) gradient.set_bits(i, bits[i % period]);
    inputs.push_back(gradient);
  }
  inputs.push_back(x);
  return inputs;
}

std::vector<Buffer> pass_inputs(Pass pass, const Buffer& x, long double gradient) {
  Buffer gradients(x.dtype(), x.count());
  const std::uint64_t bits = round_to(format_of(x.dtype()), gradient);
  for (std::size_t i = 0; i < x.count(); ++i) gradients.set_bits(i, bits);
  std::vector<Buffer> inputs(static_cast<std::size_t>(pass), gradients);
  inputs.push_back(x);
  return inputs;
}

Buffer run(KernelFn kernel, const std::vector<Buffer>& inputs,
           const std::vector<double>& attributes) {
  Buffer output(inputs.front().dtype(), inputs.front().count());
  std::vector<const void*> from;
  for (const Buffer& input : inputs) from.push_back(input.data());
  void* to[] = {output.data()};
  kernel(from.data(), to, static_cast<std::int64_t>(output.count()), attributes.data());
  return output;
}

std::vector<std::vector<double>> attribute_sets(const OpInfo& op) {
  std::vector<double> defaults;
  for (std::size_t i = 0; i < op.attribute_count; ++i) {
    defaults.push_back(op.attributes[i].default_value);
  }
  std::vector<std::vector<double>> sets{defaults};
  if (const OpReference* reference = find_reference(op.name)) {
    for (const auto& set : reference->attribute_sets) {
      if (set != defaults) sets.push_back(set);
    }
  }
  return sets;
}

std::string describe(const OpInfo& op, Pass pass, DType dtype,
                     const std::vector<double>& attributes) {
  std::ostringstream text;
  text << op.name << ' ' << pass_name(pass) << ' ' << dtype_name(dtype) << " on " << cpu_isa()
       << " with {";
  for (std::size_t i = 0; i < attributes.size(); ++i) text << (i == 0 ? "" : ", ") << attributes[i];
  text << '}';
  return text.str();
}

std::string describe_element(const std::vector<Buffer>& inputs, const Buffer& output,
                             std::size_t index) {
  std::ostringstream text;
  text.precision(20);
  text << ", element " << index << ", inputs";
  for (const Buffer& input : inputs) text << ' ' << input.value(index);
  text << ", got " << output.value(index) << " (bits 0x" << std::hex << output.bits(index) << ')';
  return text.str();
}

}  // namespace myops::tests
