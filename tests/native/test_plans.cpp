// SPDX-License-Identifier: Apache-2.0
// How ranges are split: threads (plan_tasks) and GPU grids (plan_launch). Only arithmetic, so sizes
// beyond any memory are tested, too.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "myops/cuda.hpp"
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

TEST_CASE("walk visits every element once over all blocks and threads") {
  for (const std::int64_t size : {2, 4, 8}) {
    for (std::int64_t misalignment = 0; misalignment < 16; misalignment += size) {
      for (std::int64_t count = 0; count <= 300; ++count) {
        for (const bool vectorize : {true, false}) {
          // One block has to come round again for more than 256 vectors.
          const LaunchPlan plan = plan_launch(count, size, misalignment, vectorize, 1);
          std::vector<int> visits(static_cast<std::size_t>(count));
          bool aligned = true;
          for (std::uint32_t block = 0; block < plan.blocks; ++block) {
            for (std::uint32_t thread = 0; thread < plan.threads; ++thread) {
              walk(
                  plan, block, thread,
                  [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; },
                  [&](std::int64_t i) {
                    aligned = aligned && (!vectorize || (misalignment + i * size) % 16 == 0);
                    for (std::int64_t e = 0; e < plan.vector_width; ++e) {
                      ++visits[static_cast<std::size_t>(i + e)];
                    }
                  });
            }
          }
          CAPTURE(count);
          CHECK(aligned);
          CHECK(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; }));
        }
      }
    }
  }
}

TEST_CASE("walk beyond 2^32 elements") {
  const std::int64_t count = (std::int64_t(1) << 33) + 6;
  const LaunchPlan plan = plan_launch(count, 2, 6, true, 528);
  REQUIRE(plan.tail > 0);
  std::int64_t last_vector = -1;
  std::int64_t last_scalar = -1;
  const auto scalar = [&](std::int64_t i) { last_scalar = i; };
  const auto vector = [&](std::int64_t i) { last_vector = i; };
  const std::int64_t owner =
      (plan.vectors - 1) % (static_cast<std::int64_t>(plan.blocks) * plan.threads);
  walk(plan, owner / plan.threads, owner % plan.threads, scalar, vector);
  CHECK(last_vector == plan.head + (plan.vectors - 1) * plan.vector_width);
  walk(plan, 0, plan.head + plan.tail - 1, scalar, vector);
  CHECK(last_scalar == count - 1);
}

TEST_CASE("a build has CUDA kernels for all operators or for none") {
  const bool built = cuda_status().ok();
  CHECK((cuda_architectures()[0] != '\0') == built);
  for (const OpInfo& op : ops()) {
    for (std::size_t pass = 0; pass < pass_count; ++pass) {
      for (std::size_t dtype = 0; dtype < dtype_count; ++dtype) {
        const auto kernel = cuda_kernel(op, static_cast<Pass>(pass), static_cast<DType>(dtype));
        CHECK((kernel != nullptr) == built);
        // Nothing is launched, so no device is needed.
        if (kernel != nullptr) CHECK(kernel({nullptr, nullptr, 0, nullptr, nullptr}).ok());
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
