// SPDX-License-Identifier: Apache-2.0
#include "cpu/route.h"

#include "cpu/route_scratch.h"

#define TL_BODY "cpu/route_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

std::size_t RouteScratchBytes(const RouteArgs& args, int num_workers) {
    const RouteBuffers buffers(args, nullptr);
    return static_cast<std::size_t>(num_workers * buffers.total) * sizeof(float);
}

void Route(const RouteArgs& args, Worker& worker) { TL_DISPATCH(RouteTokens)(args, worker); }

}  // namespace tokenlight::cpu
