// SPDX-License-Identifier: Apache-2.0
#include "cpu/embedding.h"

#include <stdexcept>
#include <string>

#include "cpu/half.h"

namespace tokenlight::cpu {
namespace {

float HalfAt(const std::uint8_t* p) {
    Half half;
    std::memcpy(&half, p, sizeof(half));
    return ToFloat(half);
}

// Where a row's bytes of one block are: in a tile they are 4 of each 64; in a row after the last
// tile, all.
struct BlockOfRow {
    const std::uint8_t* scales;
    const std::uint8_t* quants;
    int scale_stride;  // between kinds of scale
    int quad_stride;   // between groups of 4 quant bytes
    std::uint8_t flip;

    std::uint8_t Quant(int i) const { return quants[i / 4 * quad_stride + i % 4] ^ flip; }
    float Scale(int kind) const { return HalfAt(scales + kind * scale_stride); }
};

// In separate roundings, as the reference does: this must be exact.
void Dequantize(WeightFormat format, const BlockOfRow& block, float* out) {
    const float step = block.Scale(0);
    if (format == WeightFormat::kQ8_0) {
        for (int i = 0; i < kBlockElements; ++i) {
            out[i] = step * static_cast<float>(static_cast<std::int8_t>(block.Quant(i)));
        }
        return;
    }
    constexpr int kHalfBlock = kBlockElements / 2;
    const bool has_minimum = format == WeightFormat::kQ4_1;
    const float minimum = has_minimum ? block.Scale(1) : 0.0F;
    for (int i = 0; i < kHalfBlock; ++i) {
        const std::uint8_t byte = block.Quant(i);
        const int low = byte & 0x0F, high = byte >> 4;
        out[i] = has_minimum ? step * static_cast<float>(low) + minimum
                             : step * static_cast<float>(low - 8);
        out[i + kHalfBlock] = has_minimum ? step * static_cast<float>(high) + minimum
                                          : step * static_cast<float>(high - 8);
    }
}

void QuantizedRow(const EmbeddingArgs& a, std::int64_t id, float* out) {
    const auto* table = static_cast<const std::uint8_t*>(a.table);
    const std::int64_t row_bytes = RowBytes(a.format, a.width);
    const std::int64_t num_blocks = a.width / kBlockElements;
    const std::int64_t block_bytes = row_bytes / num_blocks;
    const int scale_bytes = a.format == WeightFormat::kQ4_1 ? 4 : 2;
    const bool is_tiled = id < a.num_rows / kTileRows * kTileRows;
    const std::int64_t lane = id % kTileRows;
    for (std::int64_t b = 0; b < num_blocks; ++b) {
        BlockOfRow block;
        if (is_tiled) {
            const std::uint8_t* tile =
                table + id / kTileRows * kTileRows * row_bytes + b * block_bytes * kTileRows;
            block = {tile + 2 * lane, tile + scale_bytes * kTileRows + 4 * lane, 2 * kTileRows,
                     4 * kTileRows,
                     static_cast<std::uint8_t>(a.format == WeightFormat::kQ8_0 ? 0x80 : 0)};
        } else {
            const std::uint8_t* row = table + id * row_bytes + b * block_bytes;
            block = {row, row + scale_bytes, 2, 4, 0};
        }
        Dequantize(a.format, block, out + b * kBlockElements);
    }
}

template <class T>
void DenseRow(const EmbeddingArgs& a, std::int64_t id, float* out) {
    const T* row = static_cast<const T*>(a.table) + id * a.width;
    for (std::int64_t i = 0; i < a.width; ++i) out[i] = ToFloat(row[i]);
}

}  // namespace

void CheckIds(const EmbeddingArgs& args) {
    for (std::int64_t t = 0; t < args.num_ids; ++t) {
        if (args.ids[t] < 0 || args.ids[t] >= args.num_rows) {
            throw std::out_of_range("token id " + std::to_string(args.ids[t]) + " at " +
                                    std::to_string(t) + " is outside the vocabulary of " +
                                    std::to_string(args.num_rows));
        }
    }
}

void Embedding(const EmbeddingArgs& args, Worker& worker) {
    for (std::int64_t t = worker.index(); t < args.num_ids; t += worker.count()) {
        float* out = args.out + t * args.width;
        switch (args.format) {
            case WeightFormat::kF32:
                DenseRow<float>(args, args.ids[t], out);
                break;
            case WeightFormat::kF16:
                DenseRow<Half>(args, args.ids[t], out);
                break;
            case WeightFormat::kBf16:
                DenseRow<Bf16>(args, args.ids[t], out);
                break;
            case WeightFormat::kQ4_0:
            case WeightFormat::kQ4_1:
            case WeightFormat::kQ8_0:
                QuantizedRow(args, args.ids[t], out);
                break;
        }
    }
}

}  // namespace tokenlight::cpu
