// SPDX-License-Identifier: Apache-2.0
#include "cpu/spans.h"

#include <algorithm>

namespace tokenlight::cpu {

Piece Spans::Take(const Worker& worker, std::int64_t size) {
    const int num_spans = std::min(worker.count(), kMostSpans);
    for (int i = 0; i < num_spans; ++i) {
        const int span = (worker.index() + i) % num_spans;
        const std::int64_t first = size * span / num_spans;
        const std::int64_t width = size * (span + 1) / num_spans - first;
        const std::int64_t num_pieces = std::min(width, kMostPieces);
        Taken& taken = taken_[span];
        if (taken.claimed.load(std::memory_order_relaxed) >= num_pieces) continue;
        if (taken.claimed.fetch_add(1, std::memory_order_relaxed) >= num_pieces) continue;
        const std::int64_t piece =
            i == 0 ? taken.from_front.fetch_add(1, std::memory_order_relaxed)
                   : num_pieces - 1 - taken.from_back.fetch_add(1, std::memory_order_relaxed);
        return {first + width * piece / num_pieces, first + width * (piece + 1) / num_pieces};
    }
    return {0, 0};
}

std::int64_t Spans::Start(const Worker& worker, std::int64_t size) {
    const int num_spans = std::min(worker.count(), kMostSpans);
    return size * (worker.index() % num_spans) / num_spans;
}

}  // namespace tokenlight::cpu
