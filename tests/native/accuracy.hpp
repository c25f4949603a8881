// SPDX-License-Identifier: Apache-2.0
// The one judgement of a kernel's values: against the op's reference, or where it has none against
// its own f64 kernel, within their bounds.
#pragma once

#include <vector>

#include "formats.hpp"

namespace myops::tests {

/// Runs the kernel in use on `inputs` and CHECKs every element. The message holds the worst error
/// measured; `--success` shows it for passing checks, too.
void check_accuracy(const OpInfo& op, Pass pass, const std::vector<Buffer>& inputs,
                    const std::vector<double>& attributes);

}  // namespace myops::tests
