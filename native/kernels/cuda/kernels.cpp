// SPDX-License-Identifier: Apache-2.0
// What a build with CUDA answers about itself.
#include "myops/cuda.hpp"

namespace myops {

Status cuda_status() noexcept { return {}; }

const char* cuda_architectures() noexcept { return MYOPS_CUDA_ARCHITECTURES; }

}  // namespace myops
