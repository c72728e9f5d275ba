// SPDX-License-Identifier: Apache-2.0
#include "cpu/head_linear.h"

#include <algorithm>
#include <cstring>

#include "cpu/linear.h"

namespace tokenlight::cpu {
namespace {

// Rows that share a pass over a head's weight.
constexpr std::int64_t kChunkRows = 64;

LinearArgs OfHead(const HeadLinearArgs& a, std::int64_t head, std::int64_t first_row) {
    return {nullptr,
            a.x + first_row * a.x_stride + head * a.k,
            static_cast<const std::byte*>(a.weight) + head * a.n * RowBytes(a.format, a.k),
            nullptr,
            std::min(kChunkRows, a.num_rows - first_row),
            a.n,
            a.k,
            a.x_stride,
            a.format,
            nullptr};
}

// One worker's: a chunk's products, then what they need.
std::int64_t ProductBytes(const HeadLinearArgs& a) {
    const std::int64_t bytes = std::min(kChunkRows, a.num_rows) * a.n * std::int64_t{sizeof(float)};
    return (bytes + 63) / 64 * 64;
}

std::int64_t WorkerBytes(const HeadLinearArgs& a) {
    const std::int64_t rest = a.num_rows % kChunkRows;
    std::size_t most = 0;
    if (a.num_rows >= kChunkRows) most = LinearScratchBytes(OfHead(a, 0, 0), 1);
    if (rest > 0) most = std::max(most, LinearScratchBytes(OfHead(a, 0, a.num_rows - rest), 1));
    return ProductBytes(a) + (static_cast<std::int64_t>(most) + 63) / 64 * 64;
}

}  // namespace

std::size_t HeadLinearScratchBytes(const HeadLinearArgs& args, int num_workers) {
    return static_cast<std::size_t>(num_workers * WorkerBytes(args));
}

void HeadLinear(const HeadLinearArgs& args, Worker& worker) {
    const std::int64_t num_chunks = (args.num_rows + kChunkRows - 1) / kChunkRows;
    std::byte* own = static_cast<std::byte*>(args.scratch) + worker.index() * WorkerBytes(args);
    const auto row_bytes = static_cast<std::size_t>(args.n) * sizeof(float);
    for (std::int64_t i = worker.Next(); i < args.num_heads * num_chunks; i = worker.Next()) {
        const std::int64_t head = i / num_chunks, first = i % num_chunks * kChunkRows;
        LinearArgs linear = OfHead(args, head, first);
        linear.y = reinterpret_cast<float*>(own);
        linear.scratch = own + ProductBytes(args);
        LinearAlone(linear);
        for (std::int64_t r = 0; r < linear.num_rows; ++r) {
            std::memcpy(args.y + ((first + r) * args.num_heads + head) * args.n,
                        linear.y + r * args.n, row_bytes);
        }
    }
}

}  // namespace tokenlight::cpu
