// SPDX-License-Identifier: Apache-2.0
// Calls the kernels directly: SwiGLU on a vector of one's own, its gradient, and RMSNorm of rows.
// Kernels are plain functions over flat memory; a program with threads gives each a range.
#include <cstdio>
#include <cstring>
#include <vector>

#include <myops/kernels.hpp>
#include <myops/norm.hpp>

namespace {

void print(const char* name, const std::vector<float>& values) {
  std::printf("%s", name);
  for (const float value : values) std::printf(" %.6f", static_cast<double>(value));
  std::printf("\n");
}

void swiglu(const std::vector<float>& gate, const std::vector<float>& x) {
  const myops::OpInfo& op = *myops::find_op("SwiGLU");
  const auto count = static_cast<std::int64_t>(x.size());
  const double attributes[] = {op.attributes[0].default_value};

  std::vector<float> y(x.size());
  const void* inputs[] = {gate.data(), x.data()};
  void* outputs[] = {y.data()};
  myops::cpu_kernel(op, myops::Pass::forward, myops::DType::f32)(inputs, outputs, count, attributes,
                                                                 myops::Placement::cache);
  print("swiglu", y);

  // The gradient of the sum of y: that of y itself is 1.
  const std::vector<float> grad(x.size(), 1.0F);
  std::vector<float> gate_grad(x.size());
  std::vector<float> x_grad(x.size());
  const void* backward_inputs[] = {grad.data(), gate.data(), x.data()};
  void* backward_outputs[] = {gate_grad.data(), x_grad.data()};
  myops::cpu_kernel(op, myops::Pass::backward, myops::DType::f32)(
      backward_inputs, backward_outputs, count, attributes, myops::Placement::cache);
  print("grad of gate", gate_grad);
  print("grad of x", x_grad);
}

void rms_norm(std::vector<float> x, const std::vector<float>& weight) {
  myops::NormForward call{};
  call.x = x.data();
  call.weight = weight.data();
  call.y = x.data();  // in place
  call.width = static_cast<std::int64_t>(weight.size());
  call.rows = static_cast<std::int64_t>(x.size() / weight.size());
  call.attributes[0] = 1e-6;  // eps
  myops::norm_kernels(*myops::find_norm("RMSNorm"), myops::DType::f32).forward(call);
  print("rms_norm", x);
}

}  // namespace

int main() {
  const myops::Status status = myops::isa_status();
  if (!status.ok()) {  // MYOPS_ISA in the environment asks for what this machine lacks
    std::fprintf(stderr, "%s\n", status.message());
    return 1;
  }
  std::printf("operators");
  for (const myops::OpInfo& op : myops::ops()) std::printf(" %s", op.name);
  for (const myops::OpInfo& op : myops::norm_ops()) std::printf(" %s", op.name);
  std::printf("\ninstruction set %s\n", myops::cpu_isa());
  swiglu({-1.0F, 0.0F, 1.0F, 2.0F}, {1.0F, 2.0F, 3.0F, 4.0F});
  rms_norm({3.0F, 4.0F, 6.0F, 8.0F}, {1.0F, 2.0F});
  return 0;
}
