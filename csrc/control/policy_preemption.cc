// SPDX-License-Identifier: Apache-2.0
#include "control/mutants.h"
#include "control/policy.h"

namespace tokenlight::control {

bool MayBePreempted(const Config& config, const Request& request) {
    return IsPlanted(Mutant::kPreemptWithoutBound) ||
           request.num_preemptions < config.max_preemptions;
}

// The newest of the lowest priority: he has the least to lose, and the oldest is sure to finish.
bool IsPreemptedBefore(const Request& a, const Request& b) { return a.key > b.key; }

}  // namespace tokenlight::control
