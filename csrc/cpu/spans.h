// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace tokenlight::cpu {

// Some neighbouring parts of a region's work; none where first == last.
struct Piece {
    std::int64_t first;
    std::int64_t last;
};

// Shares a region's work out so that each worker reads one stream of memory: a span of the work is
// each one's own, whose pieces it takes from the front; who has finished his own takes those of
// others from the back, half of what is left at a time, so that he too reads forward. A
// worker that comes late, or not at all, leaves nothing undone.
class Spans {
  public:
    // For so many workers, of which one gives its number below theirs.
    explicit Spans(int num_workers);

    // Of `size` parts, the next for this worker; none once all are taken.
    Piece Take(int worker, std::int64_t size);

    // Where the worker's own span begins.
    std::int64_t Start(int worker, std::int64_t size) const;

  private:
    static constexpr int kMostSpans = 64;
    static constexpr std::int64_t kMostPieces = 64;  // of a span

    // Of the pieces of a span. Who has raised `claimed` below their number has as many as fit: the
    // next from the front or the back, which together are no more than were claimed.
    struct alignas(64) Taken {
        std::atomic<std::int64_t> claimed;
        std::atomic<std::int64_t> from_front;
        std::atomic<std::int64_t> from_back;
    };
    const int num_spans_;
    Taken taken_[kMostSpans];  // num_spans_ of them are set
};

}  // namespace tokenlight::cpu
