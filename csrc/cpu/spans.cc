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
        const std::int64_t left = num_pieces - taken.claimed.load(std::memory_order_relaxed);
        if (left <= 0) continue;
        const std::int64_t wanted = i == 0 ? 1 : (left + 1) / 2;
        const std::int64_t rest =
            num_pieces - taken.claimed.fetch_add(wanted, std::memory_order_relaxed);
        if (rest <= 0) continue;
        const std::int64_t count = std::min(wanted, rest);
        const std::int64_t piece =
            i == 0
                ? taken.from_front.fetch_add(1, std::memory_order_relaxed)
                : num_pieces - count - taken.from_back.fetch_add(count, std::memory_order_relaxed);
        return {first + width * piece / num_pieces, first + width * (piece + count) / num_pieces};
    }
    return {0, 0};
}

std::int64_t Spans::Start(const Worker& worker, std::int64_t size) {
    const int num_spans = std::min(worker.count(), kMostSpans);
    return size * (worker.index() % num_spans) / num_spans;
}

}  // namespace tokenlight::cpu
