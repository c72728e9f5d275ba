// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "control/policy.h"

namespace tokenlight::control {

// The prompt and a margin of output, so that running work is hardly ever thrown away; all of it for
// a request that was preempted as often as may be, so that it cannot run short again.
std::int32_t TokensToReserve(const Config& config, const Request& request) {
    if (!MayBePreempted(config, request)) return request.max_kv_tokens();
    return std::min(request.num_tokens() + config.output_margin_tokens, request.max_kv_tokens());
}

}  // namespace tokenlight::control
