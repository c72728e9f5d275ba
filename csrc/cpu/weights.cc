// SPDX-License-Identifier: Apache-2.0
#include "cpu/weights.h"

#include <cstring>

#include "cpu/half.h"

namespace tokenlight::cpu {
namespace {

constexpr int kSuperBlock = 256;

std::uint8_t NibbleAt(const std::uint8_t* p, int index) {
    return static_cast<std::uint8_t>(p[index / 2] >> (4 * (index % 2)) & 0xF);
}

void SetNibble(std::uint8_t* p, int index, std::uint8_t value) {
    const int shift = 4 * (index % 2);
    p[index / 2] = static_cast<std::uint8_t>((p[index / 2] & ~(0xF << shift)) | value << shift);
}

float HalfAt(const std::uint8_t* p) {
    Half half;
    std::memcpy(&half, p, sizeof(half));
    return ToFloat(half);
}

// 2^(exponent - 128), a subnormal for 0 and 1.
float HalvedExponent(std::uint8_t exponent) {
    return FloatOfBits(exponent < 2 ? 0x00200000U << exponent
                                    : static_cast<std::uint32_t>(exponent - 1) << 23);
}

// Formats of 32: bits 0-3 of element i are in byte i % 16, its fifth bit is bit i of the high bits.
int NibbleOf(const std::uint8_t* quants, int i) {
    return i < 16 ? quants[i] & 0xF : quants[i - 16] >> 4;
}
int FifthBit(const std::uint8_t* high, int i) { return (high[i / 8] >> i % 8 & 1) << 4; }

// The whole number that element i of an ordered block stands for.
int CodeOf(WeightFormat format, const std::uint8_t* b, int i) {
    switch (format) {
        case WeightFormat::kQ4_0:
            return NibbleOf(b + 2, i) - 8;
        case WeightFormat::kQ4_1:
            return NibbleOf(b + 4, i);
        case WeightFormat::kQ5_0:
            return (NibbleOf(b + 6, i) | FifthBit(b + 2, i)) - 16;
        case WeightFormat::kQ5_1:
            return NibbleOf(b + 8, i) | FifthBit(b + 4, i);
        case WeightFormat::kQ8_0:
            return b[2 + i] - 128;
        case WeightFormat::kIq4Nl:
            return kIq4NlValues[NibbleOf(b + 2, i)];
        case WeightFormat::kMxfp4:
            return kMxfp4Values[NibbleOf(b + 1, i)];
        default:
            return 0;
    }
}

void Dequantize32(WeightFormat format, const std::uint8_t* b, float* out) {
    const float step = format == WeightFormat::kMxfp4 ? HalvedExponent(b[0]) : HalfAt(b);
    if (format == WeightFormat::kQ4_1 || format == WeightFormat::kQ5_1) {
        const float minimum = HalfAt(b + 2);
        for (int i = 0; i < 32; ++i) {
            out[i] = step * static_cast<float>(CodeOf(format, b, i)) + minimum;
        }
        return;
    }
    for (int i = 0; i < 32; ++i) out[i] = step * static_cast<float>(CodeOf(format, b, i));
}

// Formats of 256, element i in block i / 32 of 32: fields of 2 bits go through the four blocks of
// 128 elements, single bits through all eight.
int TwoBits(const std::uint8_t* fields, int i) {
    return fields[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}
int OneBit(const std::uint8_t* bits, int i) { return bits[i % 32] >> (i / 32) & 1; }
int FourBitsOf64(const std::uint8_t* nibbles, int i) {
    return nibbles[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 0xF;
}
int FourBitsOf128(const std::uint8_t* nibbles, int i) {
    return nibbles[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 0xF;
}

void DequantizeQ2K(const std::uint8_t* b, float* out) {
    for (int i = 0; i < kSuperBlock; ++i) {
        const std::uint8_t scales = b[4 + i / 16];
        const float step = HalfAt(b) * static_cast<float>(scales & 0xF);
        const float minimum = HalfAt(b + 2) * static_cast<float>(scales >> 4);
        out[i] = step * static_cast<float>(TwoBits(b + 20, i)) - minimum;
    }
}

void DequantizeQ3K(const std::uint8_t* b, float* out) {
    for (int i = 0; i < kSuperBlock; ++i) {
        const float step = HalfAt(b) * static_cast<float>(static_cast<std::int8_t>(b[2 + i / 16]));
        const int q = TwoBits(b + 50, i) | OneBit(b + 18, i) << 2;
        out[i] = step * static_cast<float>(q - 4);
    }
}

void DequantizeQ4Or5K(const std::uint8_t* b, bool has_fifth, float* out) {
    const std::uint8_t* quants = b + (has_fifth ? 52 : 20);
    for (int i = 0; i < kSuperBlock; ++i) {
        const float step = HalfAt(b) * static_cast<float>(b[4 + i / 32]);
        const float minimum = HalfAt(b + 2) * static_cast<float>(b[12 + i / 32]);
        const int fifth = has_fifth ? OneBit(b + 20, i) << 4 : 0;
        out[i] = step * static_cast<float>(FourBitsOf64(quants, i) | fifth) - minimum;
    }
}

void DequantizeQ6K(const std::uint8_t* b, float* out) {
    for (int i = 0; i < kSuperBlock; ++i) {
        const float step = HalfAt(b) * static_cast<float>(static_cast<std::int8_t>(b[2 + i / 16]));
        const int q = FourBitsOf128(b + 18, i) | TwoBits(b + 146, i) << 4;
        out[i] = step * static_cast<float>(q - 32);
    }
}

void DequantizeFp8(const std::uint8_t* b, int count, float* out) {
    float scale;
    std::memcpy(&scale, b, sizeof(scale));
    for (int i = 0; i < count; ++i) out[i] = ToFloat(Fp8{b[4 + i]}) * (scale * kFp8Unit);
}

}  // namespace

void TakeRow(const BlockLayout& layout, const std::uint8_t* tile_block, int row,
             std::uint8_t* block) {
    for (int s = 0; s < layout.num_sections; ++s) {
        const Section section = layout.sections[s];
        for (int i = 0; i < section.count; ++i) {
            const int at = i * kTileRows + row;
            switch (section.bits) {
                case 4:
                    SetNibble(block, i, NibbleAt(tile_block, at));
                    break;
                case 8:
                    block[i] = tile_block[at];
                    break;
                case 16:
                    std::memcpy(block + 2 * i, tile_block + 2 * at, 2);
                    break;
                default:
                    std::memcpy(block + 4 * i, tile_block + 4 * at, 4);
            }
        }
        block += section.Bytes();
        tile_block += kTileRows * section.Bytes();
    }
}

void PutRow(const BlockLayout& layout, const std::uint8_t* block, int row,
            std::uint8_t* tile_block) {
    for (int s = 0; s < layout.num_sections; ++s) {
        const Section section = layout.sections[s];
        for (int i = 0; i < section.count; ++i) {
            const int at = i * kTileRows + row;
            switch (section.bits) {
                case 4:
                    SetNibble(tile_block, at, NibbleAt(block, i));
                    break;
                case 8:
                    tile_block[at] = block[i];
                    break;
                case 16:
                    std::memcpy(tile_block + 2 * at, block + 2 * i, 2);
                    break;
                default:
                    std::memcpy(tile_block + 4 * at, block + 4 * i, 4);
            }
        }
        block += section.Bytes();
        tile_block += kTileRows * section.Bytes();
    }
}

void DequantizeBlock(WeightFormat format, const std::uint8_t* block, float* out) {
    switch (format) {
        case WeightFormat::kFp8E4m3x32:
        case WeightFormat::kFp8E4m3x64:
        case WeightFormat::kFp8E4m3x128:
            return DequantizeFp8(block, LayoutOf(format).num_elements, out);
        case WeightFormat::kQ2K:
            return DequantizeQ2K(block, out);
        case WeightFormat::kQ3K:
            return DequantizeQ3K(block, out);
        case WeightFormat::kQ4K:
            return DequantizeQ4Or5K(block, false, out);
        case WeightFormat::kQ5K:
            return DequantizeQ4Or5K(block, true, out);
        case WeightFormat::kQ6K:
            return DequantizeQ6K(block, out);
        default:
            return Dequantize32(format, block, out);
    }
}

}  // namespace tokenlight::cpu
