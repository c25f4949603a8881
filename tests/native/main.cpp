// SPDX-License-Identifier: Apache-2.0
// CTest runs this program once per ISA, with MYOPS_ISA set.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "isa_list.hpp"
#include "myops/kernels.hpp"

namespace {

// SKIP_RETURN_CODE in CMakeLists.txt.
constexpr int skipped = 77;

/// The ISA asked for, when this build holds it and only the machine cannot run it.
std::string missing_isa() {
  const char* wanted = std::getenv("MYOPS_ISA");
  if (wanted == nullptr || myops::isa_status().ok()) return "";
#define MYOPS_MATCH(isa) \
  if (std::string(#isa) == wanted) return #isa;
  MYOPS_TEST_ISAS(MYOPS_MATCH)
#undef MYOPS_MATCH
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string missing = missing_isa();
  if (!missing.empty()) {
    const std::string message = "skipped: this machine lacks the ISA " + missing + "\n";
    std::fputs(message.c_str(), stderr);
    return skipped;
  }
  return doctest::Context(argc, argv).run();
}
