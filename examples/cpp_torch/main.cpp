// SPDX-License-Identifier: Apache-2.0
// A libtorch program that uses the operators, forward and backward: no Python. Loading libmyops.so
// registers them; torch's dispatcher then knows them by name.
//
//   cpp_torch [LIBRARY]
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdio>

namespace {

/// Looked up once; the type is that of the schema, "swish(Tensor x, float beta=1.0) -> Tensor".
at::Tensor swish(const at::Tensor& x, double beta) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("myops::swish", "")
                             .typed<at::Tensor(const at::Tensor&, double)>();
  return op.call(x, beta);
}

double largest_difference(const at::Tensor& left, const at::Tensor& right) {
  return (left - right).abs().max().item<double>();
}

}  // namespace

int main(int argc, char** argv) {
  const char* library = argc > 1 ? argv[1] : MYOPS_TORCH_LIBRARY;
  // RTLD_NOW: a library for another torch is refused here, with the name of what is missing.
  if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "[cpp_torch] %s\n", dlerror());
    return 1;
  }
  const double beta = 1.5;
  const at::Tensor values = at::linspace(-3, 3, 7);
  const at::Tensor x = values.clone().set_requires_grad(true);
  const at::Tensor y = swish(x, beta);
  y.sum().backward();

  const at::Tensor other_x = values.clone().set_requires_grad(true);
  const at::Tensor other_y = other_x * at::sigmoid(beta * other_x);
  other_y.sum().backward();

  for (std::int64_t i = 0; i < values.numel(); ++i) {
    std::printf("x %5.1f  swish %9.6f  gradient %9.6f\n", values[i].item<double>(),
                y[i].item<double>(), x.grad()[i].item<double>());
  }
  const double forward = largest_difference(y, other_y);
  const double backward = largest_difference(x.grad(), other_x.grad());
  std::printf("largest difference from x * sigmoid(beta * x): %.1e, of its gradient: %.1e\n",
              forward, backward);
  return forward < 1e-6 && backward < 1e-6 ? 0 : 1;
}
