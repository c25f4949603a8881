// SPDX-License-Identifier: Apache-2.0
// Exit code 0 when the installed kernels compute swish(1; 1.702).
#include <cmath>
#include <myops/kernels.hpp>

int main() {
  const myops::OpInfo* swish = myops::find_op("Swish");
  if (swish == nullptr) return 1;
  const float x[] = {1.0f, 0.0f};
  float y[2] = {};
  const void* inputs[] = {x};
  void* outputs[] = {y};
  const double attributes[] = {1.702};
  const myops::KernelFn kernel = myops::cpu_kernel(*swish, myops::Pass::forward, myops::DType::f32);
  kernel(inputs, outputs, 2, attributes, myops::Placement::cache);
  return std::fabs(y[0] - 0.8457957659f) < 1e-6f && y[1] == 0.0f ? 0 : 2;
}
