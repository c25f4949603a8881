// SPDX-License-Identifier: Apache-2.0
// How ranges are split: threads (plan_tasks) and GPU grids (plan_launch). Only arithmetic, so sizes
// beyond any memory are tested, too.
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

#include "myops/kernels.hpp"
#include "myops/launch_plan.hpp"

namespace myops::tests {
namespace {

constexpr std::int64_t two_to_31 = std::int64_t(1) << 31;
constexpr std::int64_t counts[] = {0,
                                   1,
                                   2,
                                   7,
                                   255,
                                   4097,
                                   32767,
                                   32768,
                                   32769,
                                   1000003,
                                   two_to_31 - 1,
                                   two_to_31,
                                   two_to_31 + 7,
                                   std::int64_t(1) << 33,
                                   std::numeric_limits<std::int64_t>::max() / 16};

// The kernels' launch plan must be usable where a constant is needed.
static_assert(plan_launch(0, 4, 0, true, 1024).blocks == 0);
static_assert(plan_launch(1024, 4, 0, true, 1024).vectors == 256);

}  // namespace

TEST_CASE("plan_tasks covers every element once") {
  for (const std::int64_t count : counts) {
    for (const std::int64_t most : {-1, 0, 1, 2, 3, 7, 8, 64, 1000, 1000000}) {
      CAPTURE(count);
      CAPTURE(most);
      const TaskPlan plan = plan_tasks(count, most);
      if (count == 0) {
        CHECK(plan.tasks == 0);
        continue;
      }
      REQUIRE(plan.tasks >= 1);
      REQUIRE(plan.grain >= 1);
      CHECK(plan.tasks <= (most < 1 ? 1 : most));
      // Divisions, because tasks * grain may not fit.
      CHECK((count - 1) / plan.grain + 1 == plan.tasks);
      if (plan.tasks > 1) {
        CHECK(plan.grain >= 16384);
        CHECK(plan.grain % 1024 == 0);
        CHECK((plan.tasks - 1) * plan.grain < count);
      }
    }
  }
}

TEST_CASE("plan_tasks keeps small ranges on one thread and uses the threads for large ones") {
  CHECK(plan_tasks(32767, 64).tasks == 1);
  CHECK(plan_tasks(32768, 64).tasks == 2);
  CHECK(plan_tasks(two_to_31, 8).tasks == 8);
  CHECK(plan_tasks(two_to_31, 8).grain == two_to_31 / 8);
  CHECK(plan_tasks(-5, 8).tasks == 0);
  CHECK(plan_tasks(std::numeric_limits<std::int64_t>::max(), 8).tasks == 8);
}

TEST_CASE("plan_launch covers every element once, with aligned vectors") {
  for (const std::int64_t count : counts) {
    for (const std::int64_t size : {2, 4, 8}) {
      for (std::int64_t misalignment = 0; misalignment < 16; misalignment += size) {
        for (const bool vectorize : {true, false}) {
          for (const std::int64_t most :
               {std::int64_t(1), std::int64_t(1056), std::int64_t(65535), two_to_31 - 1}) {
            CAPTURE(count);
            CAPTURE(size);
            CAPTURE(misalignment);
            CAPTURE(vectorize);
            CAPTURE(most);
            const LaunchPlan plan = plan_launch(count, size, misalignment, vectorize, most);
            CHECK(plan.head >= 0);
            CHECK(plan.vectors >= 0);
            CHECK(plan.tail >= 0);
            CHECK(plan.head + plan.vectors * plan.vector_width + plan.tail == count);
            if (count == 0) {
              CHECK(plan.blocks == 0);
              continue;
            }
            CHECK(plan.threads == 256);
            CHECK(plan.blocks >= 1);
            CHECK(plan.blocks <= most);
            const bool whole_grid = plan.blocks == most;
            const std::int64_t threads = static_cast<std::int64_t>(plan.blocks) * plan.threads;
            CHECK((whole_grid || threads >= plan.vectors));
            CHECK((plan.blocks == 1 || threads - plan.threads < plan.vectors));
            // The first threads do head and tail, one element each.
            CHECK(plan.head < plan.threads);
            CHECK(plan.tail < plan.threads);
            if (vectorize) {
              CHECK(plan.vector_width * size == 16);
              if (plan.vectors > 0) CHECK((misalignment + plan.head * size) % 16 == 0);
              CHECK(plan.head < plan.vector_width);
              CHECK(plan.tail < plan.vector_width);
            } else {
              CHECK(plan.vector_width == 1);
              CHECK(plan.vectors == count);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("plan_launch of nothing launches nothing") {
  for (const std::int64_t count : {std::int64_t(0), std::int64_t(-1)}) {
    const LaunchPlan plan = plan_launch(count, 4, 4, true, 1024);
    CHECK(plan.blocks == 0);
    CHECK(plan.head == 0);
    CHECK(plan.vectors == 0);
    CHECK(plan.tail == 0);
  }
}

}  // namespace myops::tests
