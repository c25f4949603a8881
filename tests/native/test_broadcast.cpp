// SPDX-License-Identifier: Apache-2.0
// Broadcasting by tiles (CPU) and by places (CUDA), against a walk over the dims.
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <doctest/doctest.h>

#include "myops/broadcast.hpp"

namespace myops::tests {
namespace {

using Dims = std::vector<std::int64_t>;

/// For each element over `dims`, the index of the element of `own` (aligned at the last dim).
std::vector<std::int64_t> indices(const Dims& dims, const Dims& own) {
  std::int64_t count = 1;
  for (const std::int64_t size : dims) count *= size;
  std::vector<std::int64_t> result;
  for (std::int64_t element = 0; element < count; ++element) {
    std::int64_t rest = element;
    std::int64_t index = 0;
    std::int64_t stride = 1;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const std::int64_t place = rest % dims[dims.size() - 1 - i];
      rest /= dims[dims.size() - 1 - i];
      if (i >= own.size()) continue;
      const std::int64_t size = own[own.size() - 1 - i];
      if (size > 1) index += place * stride;
      stride *= size;
    }
    result.push_back(index);
  }
  return result;
}

bool plan(const Dims& dims, const Dims& own, Broadcast* result) {
  return plan_broadcast(dims.data(), dims.size(), own.data(), own.size(), result);
}

}  // namespace

TEST_CASE("an element's place and the tiles agree with a walk over the dims") {
  const Dims shapes[] = {{}, {5}, {2, 3}, {4, 1, 3}, {2, 3, 4, 5}, {1, 7, 1, 2, 3}, {300, 2}};
  for (const Dims& dims : shapes) {
    // Every choice of repeated dims, and of leading dims left out.
    for (unsigned repeated = 0; repeated < 1u << dims.size(); ++repeated) {
      for (std::size_t missing = 0; missing <= dims.size(); ++missing) {
        Dims own(dims.begin() + static_cast<std::ptrdiff_t>(missing), dims.end());
        for (std::size_t i = 0; i < own.size(); ++i) {
          if ((repeated >> i) & 1u) own[i] = 1;
        }
        Broadcast broadcast;
        REQUIRE(plan(dims, own, &broadcast));
        const std::vector<std::int64_t> expected = indices(dims, own);
        const auto count = static_cast<std::int64_t>(expected.size());
        bool places = true;
        for (std::int64_t i = 0; i < count; ++i) {
          places = places && broadcast.offset(i) == expected[static_cast<std::size_t>(i)];
        }
        CHECK(places);
        if (broadcast.is_direct()) continue;
        std::vector<std::int64_t> source(expected.size());
        for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::int64_t>(i);
        std::vector<std::int64_t> tile(expected.size());
        for (const std::int64_t begin : {std::int64_t(0), count / 3}) {
          spread(broadcast, source.data(), begin, count - begin, tile.data());
          bool tiles = true;
          for (std::int64_t i = begin; i < count; ++i) {
            tiles = tiles && tile[static_cast<std::size_t>(i - begin)] ==
                                 expected[static_cast<std::size_t>(i)];
          }
          CHECK(tiles);
        }
      }
    }
  }
}

TEST_CASE("places beyond 2^32 elements") {
  const Dims dims = {5, 3, std::int64_t(1) << 31};
  Broadcast broadcast;
  REQUIRE(plan(dims, {3, 1}, &broadcast));
  const std::int64_t row = dims[2];
  CHECK(broadcast.offset(row - 1) == 0);
  CHECK(broadcast.offset(row) == 1);
  CHECK(broadcast.offset(5 * row + 7) == 2);
  CHECK(broadcast.offset(14 * row + row - 1) == 2);
  CHECK(broadcast.offset(12 * row) == 0);
}

TEST_CASE("shapes that do not fit are refused") {
  Broadcast broadcast;
  CHECK_FALSE(plan({2, 3}, {2}, &broadcast));
  CHECK_FALSE(plan({2, 3}, {1, 2, 3}, &broadcast));
  CHECK_FALSE(plan({1, 3}, {2, 3}, &broadcast));
}

}  // namespace myops::tests
