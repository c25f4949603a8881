// SPDX-License-Identifier: Apache-2.0
#include "samples.hpp"

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

std::size_t input_count(const OpInfo& op, Pass pass) {
  return pass == Pass::forward    ? op.input_count
         : pass == Pass::backward ? op.input_count + 1
                                  : 2 * op.input_count + 1;
}

std::size_t output_count(const OpInfo& op, Pass pass) {
  return pass == Pass::forward ? 1 : op.input_count;
}

std::size_t position(const OpInfo& op, Pass pass, std::size_t input) {
  return input_count(op, pass) - op.input_count + input;
}

std::vector<Buffer> pass_inputs(const OpInfo& op, Pass pass, const Buffer& x, std::size_t input) {
  // Short in every format. The periods are coprime, so all combinations occur.
  static const std::vector<long double> near_one[] = {{1, -1, 0.75L, 3, -1.5L, 0.625L, -2},
                                                      {1, 1.25L, -1, 2.5L, -0.875L},
                                                      {1, -0.75L, 1.5L},
                                                      {-1.25L, 1}};
  constexpr std::size_t lists = sizeof near_one / sizeof *near_one;
  std::vector<Buffer> inputs;
  for (std::size_t k = 0; k < input_count(op, pass); ++k) {
    if (k == position(op, pass, input)) {
      inputs.push_back(x);
      continue;
    }
    std::vector<std::uint64_t> bits;
    for (const long double value : near_one[inputs.size() % lists]) {
      bits.push_back(round_to(format_of(x.dtype()), value));
    }
    Buffer other(x.dtype(), x.count());
    for (std::size_t i = 0; i < x.count(); ++i) other.set_bits(i, bits[i % bits.size()]);
    inputs.push_back(other);
  }
  return inputs;
}

std::vector<Buffer> pass_inputs_among(const OpInfo& op, Pass pass, const Buffer& x,
                                      long double others, std::size_t input) {
  Buffer other(x.dtype(), x.count());
  const std::uint64_t bits = round_to(format_of(x.dtype()), others);
  for (std::size_t i = 0; i < x.count(); ++i) other.set_bits(i, bits);
  std::vector<Buffer> inputs(input_count(op, pass), other);
  inputs[position(op, pass, input)] = x;
  return inputs;
}

std::vector<const void*> addresses(const std::vector<Buffer>& inputs, std::size_t begin) {
  std::vector<const void*> from;
  for (const Buffer& input : inputs) from.push_back(input.at(begin));
  return from;
}

std::vector<void*> addresses(std::vector<Buffer>& outputs, std::size_t begin) {
  std::vector<void*> to;
  for (Buffer& output : outputs) to.push_back(output.at(begin));
  return to;
}

std::vector<Buffer> run(const OpInfo& op, Pass pass, KernelFn kernel,
                        const std::vector<Buffer>& inputs, const std::vector<double>& attributes,
                        Placement placement) {
  const Buffer& first = inputs.front();
  std::vector<Buffer> outputs(output_count(op, pass), Buffer(first.dtype(), first.count()));
  kernel(addresses(inputs).data(), addresses(outputs).data(),
         static_cast<std::int64_t>(first.count()), attributes.data(), placement);
  return outputs;
}

std::vector<Buffer> parts(const std::vector<Buffer>& whole, std::size_t begin, std::size_t count) {
  std::vector<Buffer> copies;
  for (const Buffer& buffer : whole) {
    Buffer copy(buffer.dtype(), count);
    for (std::size_t i = 0; i < count; ++i) copy.set_bits(i, buffer.bits(begin + i));
    copies.push_back(copy);
  }
  return copies;
}

bool is_part(const Buffer& whole, std::size_t begin, const Buffer& piece) {
  for (std::size_t i = 0; i < piece.count(); ++i) {
    if (!same_element(piece, i, whole, begin + i)) return false;
  }
  return true;
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
