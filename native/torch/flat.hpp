// SPDX-License-Identifier: Apache-2.0
// Running a kernel over tensors, on torch's own threads: as flat memory where all of them lie in
// the same order, else row by row, gathering strided elements into tiles.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstring>

#include "checks.hpp"

namespace myops::torch_glue {

// Reads of the widest pass (two gradients of gradients, a gradient, two inputs) and its writes.
inline constexpr std::size_t most_inputs = 5;
inline constexpr std::size_t most_outputs = 2;

template <std::size_t n>
using TensorRefs = std::array<const at::Tensor*, n>;

struct Kernel {
  KernelFn function;
  const double* attributes;
  std::int64_t element_bytes;
  Placement placement;
};

/// Whether flat memory of `tensor` runs in the order of `like`'s flat memory, which is dense.
inline bool same_order(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.strides() == like.strides() && tensor.is_non_overlapping_and_dense();
}

template <std::size_t n, std::size_t m>
void run_flat(const Kernel& kernel, const std::array<const char*, n>& inputs,
              const std::array<char*, m>& outputs, std::int64_t count) {
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    const void* from[n];
    void* to[m];
    for (std::size_t i = 0; i < n; ++i) from[i] = inputs[i] + begin * kernel.element_bytes;
    for (std::size_t i = 0; i < m; ++i) to[i] = outputs[i] + begin * kernel.element_bytes;
    kernel.function(from, to, end - begin, kernel.attributes, kernel.placement);
  };
  const TaskPlan plan = plan_tasks(count, at::get_num_threads());
  if (plan.tasks == 1) {
    range(0, count);
  } else if (plan.tasks > 1) {
    at::parallel_for(0, count, plan.grain, range);
  }
}

/// Copies `count` elements; a stride is in bytes.
inline void copy_strided(const char* from, std::int64_t from_stride, char* to,
                         std::int64_t to_stride, std::int64_t count, std::int64_t element_bytes) {
  const auto copy = [&](auto element) {
    using Element = decltype(element);
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * to_stride, from + i * from_stride, sizeof(Element));
    }
  };
  if (element_bytes == 8) {
    copy(std::uint64_t{});
  } else if (element_bytes == 4) {
    copy(std::uint32_t{});
  } else {
    copy(std::uint16_t{});
  }
}

/// One row of any strides: unit strides go straight to the kernel, others through a tile in L1.
template <std::size_t n, std::size_t m>
void run_row(const Kernel& kernel, char** data, const std::int64_t* strides, std::int64_t count) {
  constexpr std::int64_t tile = 256;
  const std::int64_t size = kernel.element_bytes;
  bool direct = true;
  for (std::size_t i = 0; i < n + m; ++i) direct = direct && strides[i] == size;
  const std::int64_t step = direct ? count : tile;
  alignas(64) char buffers[n + m][tile * sizeof(double)];
  for (std::int64_t start = 0; start < count; start += step) {
    const std::int64_t length = std::min(step, count - start);
    const void* from[n];
    void* to[m];
    for (std::size_t i = 0; i < n + m; ++i) {
      char* here = data[i] + start * strides[i];
      const bool is_input = i >= m;
      if (strides[i] != size) {
        if (is_input) copy_strided(here, strides[i], buffers[i], size, length, size);
        here = buffers[i];
      }
      if (is_input) {
        from[i - m] = here;
      } else {
        to[i] = here;
      }
    }
    kernel.function(from, to, length, kernel.attributes, Placement::cache);
    for (std::size_t i = 0; i < m; ++i) {
      if (strides[i] == size) continue;
      copy_strided(buffers[i], size, data[i] + start * strides[i], strides[i], length, size);
    }
  }
}

/// Computes `outputs` from `inputs`, all of one shape and dtype.
template <std::size_t n, std::size_t m>
void run(KernelFn function, const TensorRefs<n>& inputs, const std::array<at::Tensor, m>& outputs,
         const double* attributes) {
  const at::Tensor& first = outputs[0];
  const auto element_bytes = static_cast<std::int64_t>(element_size(*dtype_of(first)));
  bool aliases = false;
  for (const at::Tensor& output : outputs) {
    for (const at::Tensor* input : inputs) aliases = aliases || input->is_alias_of(output);
  }
  const std::int64_t output_bytes = static_cast<std::int64_t>(m) * first.numel() * element_bytes;
  const Kernel kernel{function, attributes, element_bytes, placement_for(output_bytes, aliases)};
  bool flat = first.is_non_overlapping_and_dense();
  for (std::size_t i = 0; i < n; ++i) flat = flat && same_order(*inputs[i], first);
  for (std::size_t i = 1; i < m; ++i) flat = flat && same_order(outputs[i], first);
  if (flat) {
    std::array<const char*, n> from;
    std::array<char*, m> to;
    for (std::size_t i = 0; i < n; ++i) {
      from[i] = static_cast<const char*>(inputs[i]->const_data_ptr());
    }
    for (std::size_t i = 0; i < m; ++i) to[i] = static_cast<char*>(outputs[i].mutable_data_ptr());
    run_flat<n, m>(kernel, from, to, first.numel());
    return;
  }
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).resize_outputs(false);
  for (const at::Tensor& output : outputs) config.add_output(output);
  for (const at::Tensor* input : inputs) config.add_const_input(*input);
  at::TensorIterator iterator = config.build();
  const TaskPlan plan = plan_tasks(first.numel(), at::get_num_threads());
  iterator.for_each([&](char** data, const std::int64_t* strides,
                        std::int64_t count) { run_row<n, m>(kernel, data, strides, count); },
                    plan.tasks > 1 ? plan.grain : std::max<std::int64_t>(first.numel(), 1));
}

}  // namespace myops::torch_glue
