// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/threads.h"

namespace tokenlight::cpu {

// What this machine can do at best, for a benchmark to print beside its number.

struct ReadProbe {
    const std::uint8_t* memory;
    std::int64_t num_bytes;  // a multiple of 64 per worker is read
};
// Reads every byte once.
void ReadAll(const ReadProbe& probe, Worker& worker);

struct PeakProbe {
    std::int64_t num_rounds;
};
constexpr std::int64_t kProbeChains = 12;
// num_rounds * kProbeChains multiply-adds of 16 floats, or int8 dot products of 64 weights, on each
// worker.
void MultiplyFloats(const PeakProbe& probe, Worker& worker);
void MultiplyInts(const PeakProbe& probe, Worker& worker);

}  // namespace tokenlight::cpu
