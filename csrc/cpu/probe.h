// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/threads.h"

namespace tokenlight::cpu {

// What this machine can do at best, for a benchmark to print beside its number.

struct ReadProbe {
    const std::uint8_t* memory;
    std::int64_t num_bytes;
};
constexpr std::int64_t kReadPiece = 256 << 10;
// Reads every whole piece of memory once.
void ReadAll(const ReadProbe& probe, Worker& worker);

struct PeakProbe {
    std::int64_t num_pieces;
};
constexpr std::int64_t kProbeRounds = 20000;
constexpr std::int64_t kProbeChains = 12;
// In each piece kProbeRounds * kProbeChains multiply-adds of 16 floats, or int8 dot products of 64
// weights.
void MultiplyFloats(const PeakProbe& probe, Worker& worker);
void MultiplyInts(const PeakProbe& probe, Worker& worker);

}  // namespace tokenlight::cpu
