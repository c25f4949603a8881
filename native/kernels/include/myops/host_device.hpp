// SPDX-License-Identifier: Apache-2.0
// Marks functions that run on the host and, where a CUDA compiler reads them, on the GPU.
#pragma once

#if defined(__CUDACC__)
#define MYOPS_HOST_DEVICE __host__ __device__
#else
#define MYOPS_HOST_DEVICE
#endif
