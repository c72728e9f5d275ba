// SPDX-License-Identifier: Apache-2.0
#include "cpu/embedding.h"

#include <stdexcept>
#include <string>

#include "cpu/half.h"

namespace tokenlight::cpu {
namespace {

constexpr int kMaxBlockBytes = 256;

void QuantizedRow(const EmbeddingArgs& a, std::int64_t id, float* out) {
    const BlockLayout layout = LayoutOf(a.format);
    const std::int64_t block_bytes = layout.Bytes();
    const std::int64_t num_blocks = a.width / layout.num_elements;
    const std::int64_t row_bytes = num_blocks * block_bytes;
    const auto* table = static_cast<const std::uint8_t*>(a.table);
    const bool is_tiled = !IsDense(a.format) && id < a.num_rows / kTileRows * kTileRows;
    const std::uint8_t* tile = table + id / kTileRows * kTileRows * row_bytes;
    std::uint8_t ordered[kMaxBlockBytes];
    for (std::int64_t b = 0; b < num_blocks; ++b) {
        const std::uint8_t* block = table + id * row_bytes + b * block_bytes;
        if (is_tiled) {
            TakeRow(layout, tile + b * block_bytes * kTileRows, static_cast<int>(id % kTileRows),
                    ordered);
            block = ordered;
        }
        DequantizeBlock(a.format, block, out + b * layout.num_elements);
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
    for (std::int64_t t = worker.Next(); t < args.num_ids; t = worker.Next()) {
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
            default:
                QuantizedRow(args, args.ids[t], out);
                break;
        }
    }
}

}  // namespace tokenlight::cpu
