// SPDX-License-Identifier: Apache-2.0
#include "cpu/spans.h"

#include <algorithm>

namespace tokenlight::cpu {

Spans::Spans(int num_workers) : num_spans_(std::min(num_workers, kMostSpans)) {
    for (Taken* taken = taken_; taken < taken_ + num_spans_; ++taken) {
        taken->claimed.store(0, std::memory_order_relaxed);
        taken->from_front.store(0, std::memory_order_relaxed);
        taken->from_back.store(0, std::memory_order_relaxed);
    }
}

Piece Spans::Take(int worker, std::int64_t size) {
    for (int i = 0; i < num_spans_; ++i) {
        const int span = (worker + i) % num_spans_;
        const std::int64_t first = size * span / num_spans_;
        const std::int64_t width = size * (span + 1) / num_spans_ - first;
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

std::int64_t Spans::Start(int worker, std::int64_t size) const {
    return size * (worker % num_spans_) / num_spans_;
}

}  // namespace tokenlight::cpu
