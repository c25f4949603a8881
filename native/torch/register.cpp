// SPDX-License-Identifier: Apache-2.0
// Registers every op of the list with torch. Loading the library is enough; no Python is involved.
#include <dlfcn.h>
#include <torch/library.h>
#include <torch/version.h>

#include <memory>
#include <sstream>

#include "autograd.hpp"
#include "norm.hpp"
#include "schema.hpp"

namespace myops::torch_glue {
namespace {

/// The file this code was loaded from.
std::string library_path() {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&library_path), &info) != 0;
  return found && info.dli_fname != nullptr ? info.dli_fname : "lib" MYOPS_NAMESPACE ".so";
}

std::string schema(const OpInfo& op, Pass pass, bool out) {
  std::ostringstream text;
  text << pass_name(op, pass) << (out ? ".out(" : "(");
  const char* separator = "";
  for (std::size_t i = 0; i < tensor_count(op.input_count, pass); ++i) {
    text << separator << "Tensor " << argument_name(op, pass, i);
    separator = ", ";
  }
  text << attribute_arguments(op);
  const std::size_t results = result_count(op.input_count, pass);
  if (out) {
    text << ", *";
    for (std::size_t i = 0; i < results; ++i) {
      text << ", Tensor(" << static_cast<char>('a' + i) << "!) " << out_name(op, pass, i);
    }
    // Returning `out` would alias an argument, which functionalization refuses in custom operators.
    text << ") -> ()";
  } else if (results == 1) {
    text << ") -> Tensor";
  } else {
    text << ") -> (Tensor";
    for (std::size_t i = 1; i < results; ++i) text << ", Tensor";
    text << ")";
  }
  return text.str();
}

template <OpIndex index, Pass pass>
void define_pass(torch::Library& library) {
  using Kernels = Glue<index, pass>;
  using Derivatives = Autograd<index, pass>;
  const OpInfo& op = info_of(index);
  const std::string name = pass_name(op, pass);
  const std::string out_name = name + ".out";
  library.def(schema(op, pass, false).c_str(), {at::Tag::pt2_compliant_tag});
  library.impl(name.c_str(), torch::dispatch(c10::kCPU, TORCH_FN(Kernels::template on<Cpu>)));
  library.impl(name.c_str(), torch::dispatch(c10::kCUDA, TORCH_FN(Kernels::template on<Cuda>)));
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(Kernels::meta)));
  // Layouts without kernels get the checks' sentence instead of torch's page.
  for (const c10::DispatchKey key : {c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseCsrCPU,
                                     c10::DispatchKey::MkldnnCPU, c10::DispatchKey::QuantizedCPU}) {
    library.impl(name.c_str(), torch::dispatch(key, TORCH_FN(Kernels::meta)));
  }
  library.impl(name.c_str(),
               torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(Derivatives::kernel)));
  library.def(schema(op, pass, true).c_str(), {at::Tag::pt2_compliant_tag});
  library.impl(out_name.c_str(),
               torch::dispatch(c10::kCPU, TORCH_FN(Kernels::template on_out<Cpu>)));
  library.impl(out_name.c_str(),
               torch::dispatch(c10::kCUDA, TORCH_FN(Kernels::template on_out<Cuda>)));
  library.impl(out_name.c_str(),
               torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(Kernels::meta_out)));
  library.impl(out_name.c_str(),
               torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(Derivatives::out_kernel)));
}

template <OpIndex index>
void define_op(torch::Library& library) {
  define_pass<index, Pass::forward>(library);
  define_pass<index, Pass::backward>(library);
  define_pass<index, Pass::double_backward>(library);
}

/// Registers on load. An exception out of a static initialiser would end the process, so a second
/// copy of the library says on stderr which two files collide, and stays inert.
struct Registration {
  std::string path = library_path();
  std::string conflict;
  std::unique_ptr<torch::Library> library;

  Registration() noexcept {
    try {
      const auto first = c10::Dispatcher::singleton().findSchema(
          {MYOPS_NAMESPACE "::" + std::string(ops().first->torch_name), ""});
      if (first.has_value()) {
        conflict = "[myops] one copy of the torch library should be loaded per process. Received " +
                   path + " after this one:\n" + first->debug() +
                   "\nRemove one of the two files or load only one.";
      } else {
        // The "source file" of the registration is this library, so that torch's own messages, and
        // the one above in another copy, can name it.
        library = std::make_unique<torch::Library>(torch::Library::DEF, MYOPS_NAMESPACE,
                                                   std::nullopt, path.c_str(), 1);
#define MYOPS_DEFINE(Name, torch_name) define_op<OpIndex::Name>(*library);
        MYOPS_ALL_OPS(MYOPS_DEFINE)
#undef MYOPS_DEFINE
        define_norms(*library);
      }
    } catch (const std::exception& error) {
      conflict = std::string("[myops] the operators should register with torch. Received: ") +
                 error.what();
    }
    if (!conflict.empty()) TORCH_WARN(conflict);
  }
};

const Registration registration;

}  // namespace
}  // namespace myops::torch_glue

extern "C" {

/// Why this copy registered nothing, or an empty string.
__attribute__((visibility("default"))) const char* myops_torch_conflict() {
  return myops::torch_glue::registration.conflict.c_str();
}

/// The torch release this library was compiled against.
__attribute__((visibility("default"))) const char* myops_torch_version() { return TORCH_VERSION; }
}
