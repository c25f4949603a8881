// SPDX-License-Identifier: Apache-2.0
// The plugin, loaded as a host loads it, in runtimes that are too old, too new or broken: an error
// that says so, never a crash. The runtimes are tables of functions.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <onnxruntime_c_api.h>

namespace {

using Register = OrtStatus* (*)(OrtSessionOptions*, const OrtApiBase*);

Register plugin() {
  static const Register entry = [] {
    void* handle = dlopen(std::getenv("MYOPS_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
    REQUIRE(handle != nullptr);
    return reinterpret_cast<Register>(dlsym(handle, "RegisterCustomOps"));
  }();
  // doctest cannot print pointers to functions.
  REQUIRE(static_cast<bool>(entry));
  return entry;
}

/// What a runtime offers; later ones have longer tables than the header of this build knows.
union Table {
  OrtApi api;
  void* functions[600];
};

struct Runtime {
  OrtApiBase base;
  Table table;
  const char* version;
  std::uint32_t highest;  // API number
};

// Callbacks of C cannot capture: the runtime in use, and what it was asked.
Runtime* current = nullptr;
std::vector<std::uint32_t> asked;
std::vector<const OrtCustomOp*> added;
std::string message;
int domains = 0;
int domains_released = 0;
std::atomic<int> registrations{0};
int fail_at_add = -1;

OrtStatus* const failure = reinterpret_cast<OrtStatus*>(&message);
OrtCustomOpDomain* const domain_handle = reinterpret_cast<OrtCustomOpDomain*>(&domains);

const OrtApi* ORT_API_CALL get_api(std::uint32_t number) noexcept {
  asked.push_back(number);
  return number <= current->highest ? &current->table.api : nullptr;
}

const char* ORT_API_CALL get_version() noexcept { return current->version; }

OrtStatus* ORT_API_CALL create_status(OrtErrorCode, const char* text) noexcept {
  message = text;
  return failure;
}

OrtStatus* ORT_API_CALL create_domain(const char*, OrtCustomOpDomain** result) noexcept {
  ++domains;
  *result = domain_handle;
  return nullptr;
}

OrtStatus* ORT_API_CALL add_op(OrtCustomOpDomain*, const OrtCustomOp* op) noexcept {
  if (static_cast<int>(added.size()) == fail_at_add) return failure;
  added.push_back(op);
  return nullptr;
}

OrtStatus* ORT_API_CALL add_domain(OrtSessionOptions*, OrtCustomOpDomain*) noexcept {
  ++registrations;
  return nullptr;
}

void ORT_API_CALL release_domain(OrtCustomOpDomain*) noexcept { ++domains_released; }

/// A runtime of its own: the plugin remembers those it has seen.
Runtime& make_runtime(const char* version, std::uint32_t highest) {
  static std::deque<Runtime> all;
  Runtime& runtime = all.emplace_back();
  std::memset(&runtime, 0, sizeof runtime);
  runtime.base.GetApi = get_api;
  runtime.base.GetVersionString = get_version;
  runtime.table.api.CreateStatus = create_status;
  runtime.table.api.CreateCustomOpDomain = create_domain;
  runtime.table.api.CustomOpDomain_Add = add_op;
  runtime.table.api.AddCustomOpDomain = add_domain;
  runtime.table.api.ReleaseCustomOpDomain = release_domain;
  runtime.version = version;
  runtime.highest = highest;
  current = &runtime;
  asked.clear();
  added.clear();
  message.clear();
  domains = domains_released = registrations = 0;
  fail_at_add = -1;
  return runtime;
}

/// "[where] what should hold. Received what was found. Do this."
void check_message(const std::string& part) {
  CAPTURE(message);
  CHECK(message.rfind("[myops] ", 0) == 0);
  CHECK(message.find(" Received ") != std::string::npos);
  CHECK(message.find(part) != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.back() == '.');
}

}  // namespace

TEST_CASE("a host that cannot be answered") {
  CHECK(plugin()(nullptr, nullptr) == nullptr);
  const OrtApiBase nothing{};
  CHECK(plugin()(nullptr, &nothing) == nullptr);
  Runtime& no_api = make_runtime("1.32.0", 0);
  CHECK(plugin()(nullptr, &no_api.base) == nullptr);
  CHECK(asked == std::vector<std::uint32_t>{1});
  Runtime& no_status = make_runtime("1.32.0", 32);
  std::memset(&no_status.table, 0, sizeof no_status.table);
  CHECK(plugin()(nullptr, &no_status.base) == nullptr);
}

TEST_CASE("versions that are too old or mean nothing") {
  const std::string long_text(5000, '1');
  for (const char* version : {"1.15.1",
                              "1.15.99",
                              "1.8.0",
                              "1.3",
                              "1.0.0",
                              "0.5",
                              "2.0.0",
                              "",
                              "1",
                              "1.",
                              "1.x",
                              "-1.20",
                              "1.-20",
                              "nonsense",
                              "1.4294967312.0",
                              "1.99999999999999999999",
                              "\xff\xfe\x01",
                              "%s%n%s",
                              long_text.c_str(),
                              static_cast<const char*>(nullptr)}) {
    Runtime& runtime = make_runtime(version, 1000);
    CHECK(plugin()(nullptr, &runtime.base) == failure);
    check_message("1.16");
    check_message("Upgrade onnxruntime.");
    if (version != nullptr) check_message(std::string(version).substr(0, 64));
    CHECK_MESSAGE(asked == std::vector<std::uint32_t>{1}, "no API above what the runtime has");
    CHECK(domains == 0);
  }
  Runtime& no_version = make_runtime("1.32.0", 32);
  no_version.base.GetVersionString = nullptr;
  CHECK(plugin()(nullptr, &no_version.base) == failure);
  check_message("no version");
}

TEST_CASE("an API that the runtime does not offer, or offers without its functions") {
  for (const char* version : {"1.16.0", "1.20.1", "1.99.0", "1.32.0-dev"}) {
    Runtime& runtime = make_runtime(version, 1);
    CHECK(plugin()(nullptr, &runtime.base) == failure);
    check_message(version);
    check_message("should offer its API");
  }
  for (int missing = 0; missing < 3; ++missing) {
    Runtime& runtime = make_runtime("1.20.1", 20);
    if (missing == 0) runtime.table.api.CreateCustomOpDomain = nullptr;
    if (missing == 1) runtime.table.api.CustomOpDomain_Add = nullptr;
    if (missing == 2) runtime.table.api.AddCustomOpDomain = nullptr;
    CHECK(plugin()(nullptr, &runtime.base) == failure);
    check_message("API 20");
    CHECK(domains == 0);
  }
}

TEST_CASE("what is registered is of the version both sides know") {
  for (const int minor : {16, 17, 20, 21, 22, 24, 32, 99}) {
    const std::string version = "1." + std::to_string(minor) + ".0";
    Runtime& runtime = make_runtime(version.c_str(), static_cast<std::uint32_t>(minor));
    CHECK(plugin()(nullptr, &runtime.base) == nullptr);
    const auto shared = static_cast<std::uint32_t>(std::min(minor, ORT_API_VERSION));
    CHECK(*std::max_element(asked.begin(), asked.end()) <= static_cast<std::uint32_t>(minor));
    CHECK(domains == 1);
    CHECK(registrations == 1);
    std::set<std::string> seen;
    for (const OrtCustomOp* op : added) {
      REQUIRE(op->version == shared);
      seen.insert(std::string(op->GetName(op)) + " " + op->GetExecutionProviderType(op) + " " +
                  std::to_string(op->GetInputType(op, 0)));
      CHECK(op->GetInputTypeCount(op) >= 1);
      CHECK(op->GetOutputTypeCount(op) >= 1);
      CHECK_FALSE(static_cast<bool>(op->CreateKernel));
      CHECK(static_cast<bool>(op->CreateKernelV2));
      CHECK(static_cast<bool>(op->KernelComputeV2));
    }
    CHECK_MESSAGE(seen.size() == added.size(), "every operator, dtype and provider once");
    CHECK(seen.count("Swish CPUExecutionProvider 1") == 1);
    CHECK(plugin()(nullptr, &runtime.base) == nullptr);
    CHECK_MESSAGE(domains == 1, "the second registration uses the first one's domain");
    CHECK(registrations == 2);
  }
}

TEST_CASE("a runtime that refuses an operator gets its error back, and may try again") {
  Runtime& runtime = make_runtime("1.20.1", 20);
  for (const int refused : {0, 1, 7}) {
    added.clear();
    fail_at_add = refused;
    CHECK(plugin()(nullptr, &runtime.base) == failure);
    CHECK(domains == domains_released);
    CHECK(registrations == 0);
  }
  added.clear();
  fail_at_add = -1;
  CHECK(plugin()(nullptr, &runtime.base) == nullptr);
  CHECK(registrations == 1);
}

TEST_CASE("threads that register at once share one domain") {
  Runtime& runtime = make_runtime("1.20.1", 20);
  // Only what several threads may call at once.
  runtime.base.GetApi = [](std::uint32_t number) noexcept -> const OrtApi* {
    return number <= 20 ? &current->table.api : nullptr;
  };
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) {
        if (plugin()(nullptr, &runtime.base) != nullptr) ++refused;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(refused == 0);
  CHECK(registrations == 1600);
  CHECK(domains == 1);
}
