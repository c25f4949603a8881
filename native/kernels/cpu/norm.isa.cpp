// SPDX-License-Identifier: Apache-2.0
// The row-wise driver: normalizations, every storage type. Compiled once per ISA like
// elementwise.isa.cpp.
#include <cstdint>
#include <type_traits>

#include "cpu/norm_table.hpp"
#include "cpu/storage.hpp"
#include "ops/norm.hpp"

// Everything but the table's accessor has internal linkage.
namespace myops {
namespace {

// Rows of the half types are converted in pieces of this size, a multiple of Sum::step.
constexpr std::int64_t piece_size = 1024;

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

/// Sum of products, in an order that depends neither on the ISA nor on how the rows are split:
/// element i goes to partial sum i % step, and these are added pairwise. As many at once, because
/// a single one would wait for its own last addition.
template <class T>
struct Sum {
  typedef T Vector __attribute__((vector_size(vector_bytes)));
  static constexpr int step = 256 / sizeof(T);
  static constexpr int lanes = vector_bytes / sizeof(T);
  static constexpr int vectors = step / lanes;

  Vector parts[vectors] = {};

  /// Adds factors[0][i] * factors[1][i] ... for the step from `start` on.
  template <int n>
  MYOPS_FN void add_step(const T* const (&factors)[n], std::int64_t start) {
    for (int v = 0; v < vectors; ++v) {
      Vector product;
      __builtin_memcpy(&product, factors[0] + start + v * lanes, sizeof product);
      for (int k = 1; k < n; ++k) {
        Vector factor;
        __builtin_memcpy(&factor, factors[k] + start + v * lanes, sizeof factor);
        product *= factor;
      }
      parts[v] += product;
    }
  }

  /// The same for all i below count. Only the last call for a row may have an incomplete step.
  template <int n>
  MYOPS_FN void add(const T* const (&factors)[n], std::int64_t count) {
    const std::int64_t whole = count / step * step;
    for (std::int64_t i = 0; i < whole; i += step) add_step(factors, i);
    if (whole == count) return;
    T rest[n][step] = {};
    const T* from[n];
    for (int k = 0; k < n; ++k) {
      for (std::int64_t i = whole; i < count; ++i) rest[k][i - whole] = factors[k][i];
      from[k] = rest[k];
    }
    add_step(from, 0);
  }

  MYOPS_FN double total() const {
    T values[step];
    __builtin_memcpy(values, parts, sizeof values);
    for (int half = step / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) values[i] += values[i + half];
    }
    return static_cast<double>(values[0]);
  }
};

/// Elements in the compute type: where they are, or converted into `buffer`.
template <class Storage, class T>
MYOPS_FN const T* computable(const Storage* from, T* buffer, std::int64_t count) {
  if constexpr (std::is_same_v<Storage, T>) {
    return from;
  } else {
    load_block(from, buffer, static_cast<int>(count));
    return buffer;
  }
}

/// Where to write them; `finish` then brings them to `to`.
template <class Storage, class T>
MYOPS_FN T* writable(Storage* to, T* buffer) {
  if constexpr (std::is_same_v<Storage, T>) {
    return to;
  } else {
    return buffer;
  }
}

template <class Storage, class T>
MYOPS_FN void finish(const T* from, Storage* to, std::int64_t count) {
  if constexpr (!std::is_same_v<Storage, T>) store_block(from, to, static_cast<int>(count));
}

/// Calls `body(start, count)` for the pieces of a row: one where nothing needs conversion.
template <class Storage, class Body>
MYOPS_FN void for_pieces(std::int64_t width, Body body) {
  using T = typename ComputeType<Storage>::type;
  const std::int64_t size = std::is_same_v<Storage, T> ? width : piece_size;
  for (std::int64_t start = 0; start < width; start += size) {
    body(start, width - start < size ? width - start : size);
  }
}

// One element more than nothing: the plain types need no buffer.
template <class Storage>
constexpr std::int64_t buffer_size =
    std::is_same_v<Storage, typename ComputeType<Storage>::type> ? 1 : piece_size;

/// Whether squares of the row overflowed, or underflowed where that matters. NaN takes the careful
/// way, too, which keeps it.
template <class T>
MYOPS_FN bool needs_care(double sum_of_squares, double width, double floor) {
  constexpr double high = sizeof(T) == 4 ? 0x1p100 : 0x1p900;
  constexpr double low = sizeof(T) == 4 ? 0x1p-80 : 0x1p-800;
  constexpr double small_floor = sizeof(T) == 4 ? 0x1p-50 : 0x1p-740;
  return !(sum_of_squares < high) || (sum_of_squares < low && floor * width < small_floor);
}

/// One element as double, whatever the storage.
template <class Storage>
MYOPS_FN double element(const Storage* from) {
  if constexpr (std::is_arithmetic_v<Storage>) {
    return static_cast<double>(*from);
  } else {
    return static_cast<double>(to_float(*from));
  }
}

MYOPS_FN void put(double value, double* to) { *to = value; }
MYOPS_FN void put(double value, float* to) { *to = static_cast<float>(value); }
MYOPS_FN void put(double value, Half* to) { *to = to_half(static_cast<float>(value)); }
MYOPS_FN void put(double value, BFloat16* to) { *to = to_bfloat16(static_cast<float>(value)); }

/// A power of two that brings the row's largest magnitude near 1, as far as its square times the
/// floor stays finite: what is smaller yet does not matter beside a floor above 0.
template <class Storage>
MYOPS_FN double scale_of(const Storage* x, std::int64_t width, double floor) {
  double largest = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    const double size = magnitude(element(x + i));
    if (size > largest) largest = size;
  }
  if (largest == 0 || largest > FloatTraits<double>::largest) return 1;
  std::int64_t exponent = static_cast<std::int64_t>(to_bits(largest) >> 52) - 1023;
  const std::int64_t lowest = floor == 0 ? -1000 : -500;
  if (exponent < lowest) exponent = lowest;
  if (exponent > 700) exponent = 700;  // small elements of the row stay normal numbers
  return bit_cast<double>(static_cast<std::uint64_t>(1023 - exponent) << 52);
}

/// Kahan's sum: the careful ways have no partial sums to keep the error small.
struct CompensatedSum {
  double total = 0;
  double error = 0;

  MYOPS_FN void add(double term) {
    const double corrected = term - error;
    const double next = total + corrected;
    const double lost = (next - total) - corrected;
    error = lost == lost ? lost : 0;  // an infinite total has no error
    total = next;
  }
};

/// What the careful ways share: the row scaled and in double.
template <class Norm, class Storage>
struct CarefulRow {
  const Storage* x;
  double scale;
  double mean_square;  // of the scaled row, as are the other two
  double factor;

  CarefulRow(const Storage* row, std::int64_t width, const Norm& norm) : x(row) {
    scale = scale_of(x, width, norm.floor());
    CompensatedSum squares;
    for (std::int64_t i = 0; i < width; ++i) squares.add(scaled(i) * scaled(i));
    mean_square = squares.total / static_cast<double>(width);
    factor = norm.factor(mean_square, scale);
  }

  MYOPS_FN double scaled(std::int64_t i) const { return element(x + i) * scale; }
};

template <class Norm, class Storage>
__attribute__((noinline)) void careful_forward(const Storage* x, const Storage* weight, Storage* y,
                                               std::int64_t width, const Norm& norm) {
  const CarefulRow<Norm, Storage> row(x, width, norm);
  for (std::int64_t i = 0; i < width; ++i) {
    put(NormElement::forward(row.scaled(i), element(weight + i), row.factor), y + i);
  }
}

template <class Norm, class Storage, class T>
__attribute__((noinline)) void careful_backward(const Storage* grad, const Storage* x,
                                                const Storage* weight, Storage* x_grad,
                                                T* weight_grad, std::int64_t width,
                                                const Norm& norm) {
  const CarefulRow<Norm, Storage> row(x, width, norm);
  CompensatedSum products;
  for (std::int64_t i = 0; i < width; ++i) {
    products.add(element(grad + i) * element(weight + i) * row.scaled(i));
  }
  const double mean =
      products.total / static_cast<double>(width) * norm.pull(row.mean_square, row.scale);
  for (std::int64_t i = 0; i < width; ++i) {
    const double g = element(grad + i);
    const double scaled = row.scaled(i);
    weight_grad[i] += static_cast<T>(NormElement::weight_backward(g, scaled, row.factor));
    const double slope =
        NormElement::backward(g, scaled, element(weight + i), row.factor, mean) * row.scale;
    put(slope, x_grad + i);
  }
}

template <class Storage>
MYOPS_FN void add_rows(const Storage* x, const Storage* residual, Storage* sum,
                       std::int64_t width) {
  using T = typename ComputeType<Storage>::type;
  for_pieces<Storage>(width, [&](std::int64_t start, std::int64_t count) {
    alignas(64) T buffers[3][buffer_size<Storage>];
    const T* a = computable(x + start, buffers[0], count);
    const T* b = computable(residual + start, buffers[1], count);
    T* to = writable(sum + start, buffers[2]);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
    finish(to, sum + start, count);
  });
}

/// The functor with its attributes as ONNX holds them: float, but for double rows.
template <class Norm, class T>
MYOPS_FN Norm with_attributes(const double* given) {
  double values[most_norm_attributes];
  for (std::size_t i = 0; i < most_norm_attributes; ++i) {
    values[i] = static_cast<double>(static_cast<T>(given[i]));
  }
  return Norm(values);
}

template <class Norm, class Storage>
void forward(const NormForward& call) {
  using T = typename ComputeType<Storage>::type;
  const std::int64_t width = call.width;
  const Norm norm = with_attributes<Norm, T>(call.attributes);
  const auto* weight = static_cast<const Storage*>(call.weight);
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const Storage* x = static_cast<const Storage*>(call.x) + row * width;
    Storage* y = static_cast<Storage*>(call.y) + row * width;
    if (call.residual != nullptr) {
      Storage* sum = static_cast<Storage*>(call.sum) + row * width;
      add_rows(x, static_cast<const Storage*>(call.residual) + row * width, sum, width);
      x = sum;
    }
    Sum<T> squares;
    for_pieces<Storage>(width, [&](std::int64_t start, std::int64_t count) {
      alignas(64) T buffer[buffer_size<Storage>];
      const T* from = computable(x + start, buffer, count);
      squares.add({from, from}, count);
    });
    const double sum = squares.total();
    if (needs_care<T>(sum, static_cast<double>(width), norm.floor())) {
      careful_forward(x, weight, y, width, norm);
      continue;
    }
    const T factor = static_cast<T>(norm.factor(sum / static_cast<double>(width), 1.0));
    for_pieces<Storage>(width, [&](std::int64_t start, std::int64_t count) {
      alignas(64) T buffers[3][buffer_size<Storage>];
      const T* from = computable(x + start, buffers[0], count);
      const T* w = computable(weight + start, buffers[1], count);
      T* to = writable(y + start, buffers[2]);
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) to[i] = NormElement::forward(from[i], w[i], factor);
      finish(to, y + start, count);
    });
  }
}

template <class Norm, class Storage>
void backward(const NormBackward& call) {
  using T = typename ComputeType<Storage>::type;
  const std::int64_t width = call.width;
  const Norm norm = with_attributes<Norm, T>(call.attributes);
  const auto* weight = static_cast<const Storage*>(call.weight);
  auto* weight_grad = static_cast<T*>(call.weight_grad);
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const Storage* x = static_cast<const Storage*>(call.x) + row * width;
    const Storage* grad = static_cast<const Storage*>(call.grad) + row * width;
    Storage* x_grad = static_cast<Storage*>(call.x_grad) + row * width;
    Sum<T> squares;
    Sum<T> products;
    for_pieces<Storage>(width, [&](std::int64_t start, std::int64_t count) {
      alignas(64) T buffers[3][buffer_size<Storage>];
      const T* from = computable(x + start, buffers[0], count);
      const T* g = computable(grad + start, buffers[1], count);
      const T* w = computable(weight + start, buffers[2], count);
      squares.add({from, from}, count);
      products.add({g, w, from}, count);
    });
    const double sum = squares.total();
    if (needs_care<T>(sum, static_cast<double>(width), norm.floor())) {
      careful_backward(grad, x, weight, x_grad, weight_grad, width, norm);
      continue;
    }
    const double mean_square = sum / static_cast<double>(width);
    const T factor = static_cast<T>(norm.factor(mean_square, 1.0));
    const T mean =
        static_cast<T>(products.total() / static_cast<double>(width) * norm.pull(mean_square, 1.0));
    for_pieces<Storage>(width, [&](std::int64_t start, std::int64_t count) {
      alignas(64) T buffers[4][buffer_size<Storage>];
      const T* from = computable(x + start, buffers[0], count);
      const T* g = computable(grad + start, buffers[1], count);
      const T* w = computable(weight + start, buffers[2], count);
      T* to = writable(x_grad + start, buffers[3]);
      T* share = weight_grad + start;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) {
        const T grad_i = g[i];
        const T x_i = from[i];
        share[i] += NormElement::weight_backward(grad_i, x_i, factor);
        to[i] = NormElement::backward(grad_i, x_i, w[i], factor, mean);
      }
      finish(to, x_grad + start, count);
    });
  }
}

template <class Norm, class Storage>
constexpr NormKernels kernels{forward<Norm, Storage>, backward<Norm, Storage>};

constexpr NormTable table = {{
#define MYOPS_ROW(Name, torch_name)                                                             \
  {kernels<Name::Formula, float>, kernels<Name::Formula, double>, kernels<Name::Formula, Half>, \
   kernels<Name::Formula, BFloat16>},
    MYOPS_NORM_OPS(MYOPS_ROW)
#undef MYOPS_ROW
}};

}  // namespace

#define MYOPS_CONCAT_(a, b) a##b
#define MYOPS_CONCAT(a, b) MYOPS_CONCAT_(a, b)

extern "C" const NormTable* MYOPS_CONCAT(myops_norms_, MYOPS_ISA_NAME)() noexcept { return &table; }

}  // namespace myops
