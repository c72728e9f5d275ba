// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tokenlight::cpu {

// Names as in GGUF. Quantized weights are in layout tile16 (tokenlight/kernels/formats/tile16.py),
// but FP8, whose blocks lie in rows: a float scale, then its numbers.
enum class WeightFormat {
    kF32,
    kF16,
    kBf16,
    kFp8E4m3x32,
    kFp8E4m3x64,
    kFp8E4m3x128,
    kQ4_0,
    kQ4_1,
    kQ5_0,
    kQ5_1,
    kQ8_0,
    kIq4Nl,
    kMxfp4,
    kQ2K,
    kQ3K,
    kQ4K,
    kQ5K,
    kQ6K,
};

constexpr int kTileRows = 16;

// Some of an ordered block: `count` elements of `bits` bits, each kind together in a tile.
struct Section {
    int bits;
    int count;

    constexpr int Bytes() const { return bits * count / 8; }
};

// A row is a run of blocks. Dense formats are blocks of one element.
struct BlockLayout {
    int num_elements;
    int num_sections;
    Section sections[4];

    constexpr int Bytes() const {
        int bytes = 0;
        for (int s = 0; s < num_sections; ++s) bytes += sections[s].Bytes();
        return bytes;
    }
};

constexpr BlockLayout LayoutOf(WeightFormat format) {
    constexpr Section kHalf{16, 1}, kHalves{16, 2}, kScales{8, 16}, kNibbles{32, 4};
    switch (format) {
        case WeightFormat::kF32:
            return {1, 1, {{32, 1}}};
        case WeightFormat::kF16:
        case WeightFormat::kBf16:
            return {1, 1, {{16, 1}}};
        case WeightFormat::kFp8E4m3x32:
            return {32, 2, {{32, 1}, {8, 32}}};
        case WeightFormat::kFp8E4m3x64:
            return {64, 2, {{32, 1}, {8, 64}}};
        case WeightFormat::kFp8E4m3x128:
            return {128, 2, {{32, 1}, {8, 128}}};
        case WeightFormat::kQ4_0:
        case WeightFormat::kIq4Nl:
            return {32, 2, {kHalf, kNibbles}};
        case WeightFormat::kQ4_1:
            return {32, 2, {kHalves, kNibbles}};
        case WeightFormat::kQ5_0:
            return {32, 3, {kHalf, {4, 8}, kNibbles}};
        case WeightFormat::kQ5_1:
            return {32, 3, {kHalves, {4, 8}, kNibbles}};
        case WeightFormat::kQ8_0:
            return {32, 2, {kHalf, {32, 8}}};
        case WeightFormat::kMxfp4:
            return {32, 2, {{8, 1}, kNibbles}};
        case WeightFormat::kQ2K:
            return {256, 3, {kHalves, kScales, {32, 16}}};
        case WeightFormat::kQ3K:
            return {256, 4, {kHalf, kScales, {32, 8}, {32, 16}}};
        case WeightFormat::kQ4K:
            return {256, 3, {kHalves, kScales, {32, 32}}};
        case WeightFormat::kQ5K:
            return {256, 4, {kHalves, kScales, {32, 8}, {32, 32}}};
        case WeightFormat::kQ6K:
            return {256, 4, {kHalf, kScales, {32, 32}, {32, 16}}};
    }
    return {1, 0, {}};
}

// Floats in rows, which products take as they are; all others are in tiles.
constexpr bool IsDense(WeightFormat format) { return format <= WeightFormat::kFp8E4m3x128; }

// Bytes of a row of `k` weights.
constexpr std::int64_t RowBytes(WeightFormat format, std::int64_t k) {
    const BlockLayout layout = LayoutOf(format);
    return k / layout.num_elements * layout.Bytes();
}

// Copies one row's ordered block out of a tile's block, or into it.
void TakeRow(const BlockLayout& layout, const std::uint8_t* tile_block, int row,
             std::uint8_t* block);
void PutRow(const BlockLayout& layout, const std::uint8_t* block, int row,
            std::uint8_t* tile_block);

// One ordered block as floats, in the separate roundings of the reference: exactly its numbers.
void DequantizeBlock(WeightFormat format, const std::uint8_t* block, float* out);

// What four bits stand for, in the formats that look them up.
constexpr std::int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace tokenlight::cpu
