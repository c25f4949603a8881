// SPDX-License-Identifier: Apache-2.0
// native/ort/api_version.hpp: which API the plugin asks a runtime for.
#include <string>

#include <doctest/doctest.h>

#include "api_version.hpp"
#include "myops/op_info.hpp"
#include "op.hpp"

namespace myops::ort {

TEST_CASE("the minor version of a runtime is read, or refused") {
  CHECK(minor_version("1.16.3") == 16);
  CHECK(minor_version("1.32.0") == 32);
  CHECK(minor_version("1.9.0") == 9);
  CHECK(minor_version("1.0.0") == 0);
  CHECK(minor_version("1.21") == 21);
  CHECK(minor_version("1.22.0-dev+abc") == 22);
  CHECK(minor_version("1.100.0") == 100);
  for (const char* refused : {"", "1", "1.", "1.x", "1.-3.0", "2.0", "11.3.0", "0.16.0", "v1.16.0",
                              " 1.16.0", "1.99999999999999999999", "abc"}) {
    CAPTURE(std::string(refused));
    CHECK(minor_version(refused) == -1);
  }
  CHECK(minor_version(nullptr) == -1);
}

TEST_CASE("both sides know the shared API version") {
  CHECK(shared_api_version(oldest_minor) == oldest_minor);
  CHECK(shared_api_version(ORT_API_VERSION - 1) == ORT_API_VERSION - 1);
  CHECK(shared_api_version(ORT_API_VERSION) == ORT_API_VERSION);
  CHECK(shared_api_version(ORT_API_VERSION + 1) == ORT_API_VERSION);
  CHECK(shared_api_version(1000) == ORT_API_VERSION);
  static_assert(oldest_minor <= ORT_API_VERSION);
}

// The plugin keeps inputs and attributes of a call in arrays of these sizes.
TEST_CASE("every op fits the plugin's arrays") {
  for (const OpInfo& op : ops()) {
    CAPTURE(std::string(op.name));
    CHECK(op.input_count <= max_inputs);
    CHECK(op.attribute_count <= max_attributes);
  }
}

}  // namespace myops::ort
