// SPDX-License-Identifier: Apache-2.0
// What the CUDA drivers share: launch errors as Status, half storage, vectors of 16 bytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "math/half.hpp"
#include "myops/status.hpp"

namespace myops::cuda {

/// The error of the last launch, or success. Launches are asynchronous: what fails later is the
/// host's to see.
#define MYOPS_LAUNCH_STATUS() ::myops::cuda::launch_status(__FILE__, __LINE__)

inline Status launch_status(const char* file, int line) noexcept {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Status::error(
      "[myops.cuda] a kernel launch should succeed. Received %s (%s) at %s:%d. Check the driver, "
      "and that this build holds the device's architecture (myops info).",
      cudaGetErrorName(error), cudaGetErrorString(error), file, line);
}

__device__ inline float load(float x) { return x; }
__device__ inline double load(double x) { return x; }
__device__ inline float load(Half x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float load(BFloat16 x) { return to_float(x); }

__device__ inline void store(float value, float* to) { *to = value; }
__device__ inline void store(double value, double* to) { *to = value; }
__device__ inline void store(float value, Half* to) {
  to->bits = __half_as_ushort(__float2half_rn(value));
}
__device__ inline void store(float value, BFloat16* to) { *to = to_bfloat16(value); }

/// As many elements as one instruction moves.
template <class Storage, int width>
struct alignas(sizeof(Storage) * width) Vector {
  Storage values[width];
};

}  // namespace myops::cuda
