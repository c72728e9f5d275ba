// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/linear.h"
#include "cpu/scratch.h"

namespace tokenlight::cpu {

// Activations that share a step. Blocks of weights are one or several of these.
constexpr int kBlockElements = 32;

// 32 activations of a row, rounded to multiples q of `step`, |q| <= kMaxQuant. With 15 bits no
// error is left to speak of, while a small model's answers differ from its float32 answers with one
// byte. Every instruction set reads these layouts.
constexpr float kMaxQuant = 127.0F * 128.0F;

// For few rows, which read packed weights: q as 128 * high + low.
struct XBlock {
    std::int8_t high[kBlockElements];
    std::int8_t low[kBlockElements];
    float step;
    // For each half of 16, or in [0] for all 32, as the format's scales go: step * sum of q, which
    // a weight's minimum is multiplied by, and -(bias of the stored weights) * sum of q.
    float step_sum[2];
    std::int32_t start[2];
};

// For rows that share weights unpacked to 16 bits. A sum of q * weight is the same whole number
// either way, below 2^31.
struct XPairBlock {
    std::int16_t pairs[kBlockElements];  // q in RoundToPairs' order
    float step;
    float step_sum[2];
    std::int32_t start[2];  // for each half, as CrossedPairs begins
};
static_assert(sizeof(XPairBlock) == sizeof(XBlock));  // scratch holds as many of either

// What a format's kByteCenter is that never rounds activations to bytes. In others it is the middle
// of the stored weights, which CrossedBytes takes for zero: a sum of a weight and an activation
// fits a byte where |q| <= 128 - kByteCenter. 0 where weights fill a byte: nothing is crossed then.
constexpr int kNoBytes = -1;

// |q| of an activation that is rounded to a byte.
constexpr float MaxByteQuant(int byte_center) {
    return static_cast<float>(byte_center == 0 ? 127 : 128 - byte_center);
}

// For few rows and many.
struct alignas(64) XByteBlock {
    std::int8_t quants[kBlockElements];
    float step;
    float step_sum[2];
    std::int32_t start[2];          // as in XBlock
    std::int32_t crossed_start[2];  // as CrossedBytes begins
};
static_assert(sizeof(XByteBlock) <= sizeof(XBlock));

// Rows from which crossed pairs pay for widening weights on the way, and from which unpacking pays.
constexpr std::int64_t kPairMinRows = 8;
constexpr std::int64_t kPanelMinRows = 16;
constexpr int kPanelTiles = 2;
// Blocks of activations along k for which a panel is unpacked at a time.
constexpr int kPanelBlocks = 64;

// The weights of two tiles against one block of activations, in registers of 16 bits or of bytes.
template <int kRegisters>
struct alignas(64) PanelBlock {
    std::uint8_t weights[kPanelTiles][kRegisters][4 * kTileRows];
    float step[2][kPanelTiles][kTileRows];  // for each half, as XBlock::step_sum
    float minimum[2][kPanelTiles][kTileRows];
    std::int32_t cross[2][kPanelTiles][kTileRows];  // what crossed sums take off
};
using PairPanelBlock = PanelBlock<kBlockElements / 2>;
using BytePanelBlock = PanelBlock<kBlockElements / 4>;

inline bool UsesPanels(const LinearArgs& a) { return a.num_rows >= kPanelMinRows; }

// Products with few activations round them in each worker for itself, rather than wait for each
// other.
constexpr std::int64_t kPrivateActivations = 16384;

inline bool RoundsPrivately(const LinearArgs& a) {
    return !UsesPanels(a) && a.num_rows * a.k <= kPrivateActivations;
}

constexpr std::int64_t Aligned64(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Of all rounded activations.
inline std::int64_t XBytes(const LinearArgs& a) {
    constexpr auto kBlockBytes = static_cast<std::int64_t>(sizeof(XBlock));
    return Aligned64(a.num_rows * (a.k / kBlockElements) * kBlockBytes);
}

// The rows beyond the last full tile are made into one in scratch.
inline std::int64_t TailBytes(const LinearArgs& a) {
    return a.n % kTileRows == 0 ? 0 : Aligned64(kTileRows * RowBytes(a.format, a.k));
}

// A gated product needs whole sums before anything is written.
inline std::int64_t PanelBlocks(const LinearArgs& a) {
    return a.is_gated ? a.k / kBlockElements : kPanelBlocks;
}

inline std::int64_t PanelBytes(const LinearArgs& a) {
    if (!UsesPanels(a)) return 0;
    const std::int64_t blocks = a.k / kBlockElements;
    return (blocks < PanelBlocks(a) ? blocks : PanelBlocks(a)) *
           static_cast<std::int64_t>(sizeof(PairPanelBlock));
}

// Scratch: activations that all share, then for each worker a panel, a tail and activations of its
// own.
inline std::int64_t SharedBytes(const LinearArgs& a) {
    return RoundsPrivately(a) ? 0 : XBytes(a) + kApartBytes;
}
inline std::int64_t WorkerBytes(const LinearArgs& a) {
    return PanelBytes(a) + TailBytes(a) + (RoundsPrivately(a) ? XBytes(a) : 0) + kApartBytes;
}

}  // namespace tokenlight::cpu
