// SPDX-License-Identifier: Apache-2.0
// The row-wise driver on CUDA: a block per row, rows taken in turns. Rows are scaled by a power of
// two first, as the CPU does where squares would leave the exponent range; sums run in another
// order than the CPU's, so results agree to rounding, not to the bit.
#include "cuda/launch.cuh"
#include "myops/cuda.hpp"
#include "ops/norm.hpp"

namespace myops {
namespace {

constexpr int threads_per_block = 256;
constexpr int warp_size = 32;
// More than any device runs at a time; the loop over rows covers the rest.
constexpr std::int64_t most_blocks = 65535;
constexpr int warps = threads_per_block / warp_size;

/// The combination of all threads' values, in all threads.
template <class T, class Combine>
__device__ T block_reduce(T value, Combine combine) {
  __shared__ T shared[warps];
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  __syncthreads();  // an earlier reduction may still be reading
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = value;
  __syncthreads();
  T all = shared[0];
  for (int i = 1; i < warps; ++i) all = combine(all, shared[i]);
  return all;
}

template <class T>
__device__ T block_sum(T value) {
  return block_reduce(value, [](T a, T b) { return a + b; });
}

template <class T>
__device__ T block_max(T value) {
  return block_reduce(value, [](T a, T b) { return a > b ? a : b; });
}

/// A power of two that brings `largest` near 1, as far as the floor times its square stays useful; 1 for
/// zero, NaN and infinities.
template <class T>
__device__ T scale_of(T largest, double floor) {
  if (!(largest > T(0)) || largest > FloatTraits<T>::largest) return T(1);
  const int room = sizeof(T) == 4 ? 100 : (floor > 0 ? 500 : 1000);
  int exponent = sizeof(T) == 4 ? ilogbf(static_cast<float>(largest)) : ilogb(largest);
  exponent = exponent > room ? room : (exponent < -room ? -room : exponent);
  return static_cast<T>(sizeof(T) == 4 ? scalbnf(1.0f, -exponent) : scalbn(1.0, -exponent));
}

/// What forward and backward need of a row.
template <class T>
struct RowScale {
  T scale;
  double mean_square;  // of the scaled row
  T factor;            // for it
};

template <class T, class Norm, class Storage>
__device__ RowScale<T> row_scale(const Storage* x, std::int64_t width, const Norm& norm) {
  T largest = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const T size = magnitude(cuda::load(x[i]));
    if (size > largest) largest = size;
  }
  const T scale = scale_of(block_max(largest), norm.floor());
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const T scaled = cuda::load(x[i]) * scale;
    sum = multiply_add(scaled, scaled, sum);
  }
  const double mean_square = static_cast<double>(block_sum(sum)) / static_cast<double>(width);
  return {scale, mean_square,
          static_cast<T>(norm.factor(mean_square, static_cast<double>(scale)))};
}

/// The functor with its attributes as ONNX holds them: float, but for double rows.
template <class Norm, class T>
__device__ Norm with_attributes(const double (&given)[most_norm_attributes]) {
  double values[most_norm_attributes];
  for (std::size_t i = 0; i < most_norm_attributes; ++i) {
    values[i] = static_cast<double>(static_cast<T>(given[i]));
  }
  return Norm(values);
}

template <class Norm, class Storage>
__global__ void __launch_bounds__(threads_per_block) norm_forward(const NormForward call) {
  using T = typename ComputeType<Storage>::type;
  const Norm norm = with_attributes<Norm, T>(call.attributes);
  const auto* weight = static_cast<const Storage*>(call.weight);
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const std::int64_t start = row * call.width;
    const Storage* x = static_cast<const Storage*>(call.x) + start;
    Storage* y = static_cast<Storage*>(call.y) + start;
    if (call.residual != nullptr) {
      const Storage* residual = static_cast<const Storage*>(call.residual) + start;
      Storage* sum = static_cast<Storage*>(call.sum) + start;
      for (std::int64_t i = threadIdx.x; i < call.width; i += blockDim.x) {
        cuda::store(cuda::load(x[i]) + cuda::load(residual[i]), sum + i);
      }
      x = sum;  // each thread goes on with the elements it wrote
    }
    const RowScale<T> r = row_scale<T>(x, call.width, norm);
    for (std::int64_t i = threadIdx.x; i < call.width; i += blockDim.x) {
      cuda::store(
          NormElement::forward(cuda::load(x[i]) * r.scale, cuda::load(weight[i]), r.factor),
          y + i);
    }
  }
}

/// Block b adds the shares of its rows to row b of `weight_grad`, [gridDim.x, width].
template <class Norm, class Storage>
__global__ void __launch_bounds__(threads_per_block) norm_backward(const NormBackward call) {
  using T = typename ComputeType<Storage>::type;
  const Norm norm = with_attributes<Norm, T>(call.attributes);
  const auto* weight = static_cast<const Storage*>(call.weight);
  T* shares = static_cast<T*>(call.weight_grad) + blockIdx.x * call.width;
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const std::int64_t start = row * call.width;
    const Storage* x = static_cast<const Storage*>(call.x) + start;
    const Storage* grad = static_cast<const Storage*>(call.grad) + start;
    Storage* x_grad = static_cast<Storage*>(call.x_grad) + start;
    const RowScale<T> r = row_scale<T>(x, call.width, norm);
    T sum = 0;
    for (std::int64_t i = threadIdx.x; i < call.width; i += blockDim.x) {
      const T product = cuda::load(grad[i]) * cuda::load(weight[i]);
      sum = multiply_add(product, cuda::load(x[i]) * r.scale, sum);
    }
    const T mean =
        static_cast<T>(static_cast<double>(block_sum(sum)) / static_cast<double>(call.width) *
                       norm.pull(r.mean_square, static_cast<double>(r.scale)));
    for (std::int64_t i = threadIdx.x; i < call.width; i += blockDim.x) {
      const T g = cuda::load(grad[i]);
      const T scaled = cuda::load(x[i]) * r.scale;
      shares[i] += NormElement::weight_backward(g, scaled, r.factor);
      cuda::store(
          NormElement::backward(g, scaled, cuda::load(weight[i]), r.factor, mean) * r.scale,
          x_grad + i);
    }
  }
}

template <class Norm, class Storage>
Status forward(const NormForward& call, void* host_stream) {
  if (call.rows <= 0 || call.width <= 0) return {};
  const dim3 blocks(static_cast<unsigned>(call.rows < most_blocks ? call.rows : most_blocks));
  const auto stream = static_cast<cudaStream_t>(host_stream);
  norm_forward<Norm, Storage><<<blocks, threads_per_block, 0, stream>>>(call);
  return MYOPS_LAUNCH_STATUS();
}

template <class Norm, class Storage>
Status backward(const NormBackward& call, std::int64_t parts, void* host_stream) {
  if (call.rows <= 0 || call.width <= 0 || parts <= 0) return {};
  const dim3 blocks(static_cast<unsigned>(parts));
  const auto stream = static_cast<cudaStream_t>(host_stream);
  norm_backward<Norm, Storage><<<blocks, threads_per_block, 0, stream>>>(call);
  return MYOPS_LAUNCH_STATUS();
}

template <class Norm, class Storage>
constexpr CudaNormKernels kernels{forward<Norm, Storage>, backward<Norm, Storage>};

constexpr CudaNormKernels table[norm_count][dtype_count] = {
#define MYOPS_ROW(Name, torch_name)                                     \
  {kernels<Name::Formula, float>, kernels<Name::Formula, double>,       \
   kernels<Name::Formula, Half>, kernels<Name::Formula, BFloat16>},
    MYOPS_NORM_OPS(MYOPS_ROW)
#undef MYOPS_ROW
};

}  // namespace

CudaNormKernels cuda_norm_kernels(const OpInfo& op, DType dtype) noexcept {
  return table[op.index][static_cast<std::size_t>(dtype)];
}

}  // namespace myops
