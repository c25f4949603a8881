// SPDX-License-Identifier: Apache-2.0
// The plugin's one entry. Hosts call it through RegisterCustomOpsLibrary or
// register_custom_ops_library.
#include <array>
#include <memory>
#include <mutex>
#include <new>

#include "api_version.hpp"
#include "host.hpp"
#include "myops/cuda.hpp"
#include "myops/norm.hpp"
#include "op.hpp"
#include "ops/norm.hpp"
#include "ops/op_table.hpp"

namespace myops::ort {
namespace {

#define MYOPS_ONE(Name, torch_name) +1
constexpr std::size_t most_custom_ops =
    2 * (op_count MYOPS_NORM_OPS(MYOPS_ONE) MYOPS_CUSTOM_OPS(MYOPS_ONE)) * dtype_count;
#undef MYOPS_ONE

// ORT keeps pointers to a domain and its ops for as long as any session lives, in whatever order
// the host destroys things: they are made once per runtime and never freed.
struct Domain {
  const OrtApiBase* base;
  OrtCustomOpDomain* handle;
  std::array<CustomOp, most_custom_ops> custom_ops;
  Domain* next;
};

/// Adds a provider's operators; `place` has room for them.
OrtStatus* add_ops(Domain& domain, const Runtime& runtime, Provider provider,
                   CustomOp* place) noexcept {
  for (std::size_t dtype = 0; dtype < dtype_count; ++dtype) {
    const auto type = static_cast<DType>(dtype);
    for (const OpInfo& info : ops()) {
      init_elementwise_op(*place, {runtime, &info, type, provider});
      MYOPS_RETURN_IF_ERROR(runtime.api->CustomOpDomain_Add(domain.handle, place++));
    }
    for (const OpInfo& info : norm_ops()) {
      init_norm_op(*place, {runtime, &info, type, provider});
      MYOPS_RETURN_IF_ERROR(runtime.api->CustomOpDomain_Add(domain.handle, place++));
    }
  }
  return nullptr;
}

OrtStatus* fill_domain(Domain& domain, const Runtime& runtime) noexcept {
  const OrtApi* api = runtime.api;
  if (OrtStatus* error = api->CreateCustomOpDomain(MYOPS_NAMESPACE, &domain.handle);
      error != nullptr) {
    return error;
  }
  // The CPU's first, and always: a registered operator switches off the model's own function, and
  // ORT asks the first registered one of a name for the types and shapes of all.
  OrtStatus* error = add_ops(domain, runtime, Provider::cpu, domain.custom_ops.data());
  if (error == nullptr && cuda_status().ok()) {
    error =
        add_ops(domain, runtime, Provider::cuda, domain.custom_ops.data() + most_custom_ops / 2);
  }
  if (error != nullptr) api->ReleaseCustomOpDomain(domain.handle);
  return error;
}

/// The domain of this runtime: a process may hold more than one libonnxruntime.
OrtStatus* domain_of(const OrtApiBase* base, const Runtime& runtime,
                     OrtCustomOpDomain** result) noexcept {
  static std::mutex mutex;
  static Domain* domains = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  for (Domain* domain = domains; domain != nullptr; domain = domain->next) {
    if (domain->base == base) {
      *result = domain->handle;
      return nullptr;
    }
  }
  std::unique_ptr<Domain> domain(new (std::nothrow) Domain{});
  if (domain == nullptr) return runtime.api->CreateStatus(ORT_FAIL, "[myops] out of memory.");
  if (OrtStatus* error = fill_domain(*domain, runtime); error != nullptr) return error;
  domain->base = base;
  domain->next = domains;
  domains = domain.release();
  *result = domains->handle;
  return nullptr;
}

OrtStatus* register_ops(OrtSessionOptions* options, const OrtApiBase* base) noexcept {
  // API 1 is what even a too old runtime has to be told so. A host without it cannot be answered.
  const OrtApi* first = base == nullptr || base->GetApi == nullptr ? nullptr : base->GetApi(1);
  if (first == nullptr || first->CreateStatus == nullptr) return nullptr;
  const char* runtime = base->GetVersionString == nullptr ? nullptr : base->GetVersionString();
  const int minor = minor_version(runtime);
  if (minor < oldest_minor) {
    const Status status =
        Status::error("[myops] lib" MYOPS_NAMESPACE
                      "_ort.so needs ONNX Runtime 1.%d or newer. Received %.64s. Upgrade "
                      "onnxruntime.",
                      oldest_minor, runtime == nullptr ? "no version" : runtime);
    return first->CreateStatus(ORT_NOT_IMPLEMENTED, status.message());
  }
  const int version = shared_api_version(minor);
  const OrtApi* api = base->GetApi(static_cast<std::uint32_t>(version));
  if (api == nullptr || api->CreateCustomOpDomain == nullptr ||
      api->CustomOpDomain_Add == nullptr || api->AddCustomOpDomain == nullptr) {
    const Status status = Status::error(
        "[myops] ONNX Runtime %.64s should offer its API %d. Received none. Reinstall onnxruntime.",
        runtime, version);
    return first->CreateStatus(ORT_NOT_IMPLEMENTED, status.message());
  }
  const Status isa = isa_status();
  if (!isa.ok()) return api->CreateStatus(ORT_INVALID_ARGUMENT, isa.message());
  OrtCustomOpDomain* handle = nullptr;
  if (OrtStatus* error = domain_of(base, {api, version, shape_by_reference(base, minor)}, &handle);
      error != nullptr)
    return error;
  return api->AddCustomOpDomain(options, handle);
}

}  // namespace
}  // namespace myops::ort

extern "C" __attribute__((visibility("default"))) OrtStatus* ORT_API_CALL
RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) noexcept {
  return myops::ort::register_ops(options, base);
}
