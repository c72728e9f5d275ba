// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "cpu/threads.h"
#include "tests/cpu_check.h"

namespace tokenlight::cpu {
namespace {

struct Tickets {
    std::vector<int>* taken;
    std::vector<std::atomic<int>>* busy;  // by worker
};

void TakeTickets(const Tickets& a, Worker& worker) {
    std::atomic<int>& busy = (*a.busy)[static_cast<std::size_t>(worker.index())];
    CheckTrue(busy.fetch_add(1) == 0, "no two workers have one index");
    const auto num_tickets = static_cast<std::int64_t>(a.taken->size());
    for (std::int64_t i = worker.Next(); i < num_tickets; i = worker.Next()) {
        // Plain memory: a ticket that two workers had would be a race.
        ++(*a.taken)[static_cast<std::size_t>(i)];
    }
    busy.fetch_sub(1);
}

// Every ticket is taken once, and what the workers wrote is there when Run returns. `taken` dies
// right after, so that a helper that is late must not touch it.
void TestTickets(int num_threads) {
    ThreadPool& pool = ThreadPool::Get();
    pool.SetNumThreads(num_threads);
    for (int round = 0; round < 3000; ++round) {
        std::vector<int> taken(static_cast<std::size_t>(round % 97));
        std::vector<std::atomic<int>> busy(static_cast<std::size_t>(num_threads));
        pool.Run(TakeTickets, Tickets{&taken, &busy}, round % (num_threads + 2) + 1);
        for (const int times : taken) CheckTrue(times == 1, "each ticket once");
    }
}

struct SharedParts {
    std::vector<int>* taken;
};

void TakePieces(const SharedParts& a, Worker& worker) {
    const auto size = static_cast<std::int64_t>(a.taken->size());
    for (;;) {
        const Piece piece = worker.Take(size);
        if (piece.first == piece.last) return;
        for (std::int64_t i = piece.first; i < piece.last; ++i) {
            ++(*a.taken)[static_cast<std::size_t>(i)];
        }
    }
}

// Every part is taken once, however many of the workers come.
void TestSpans(int num_threads) {
    ThreadPool& pool = ThreadPool::Get();
    pool.SetNumThreads(num_threads);
    for (int round = 0; round < 2000; ++round) {
        std::vector<int> taken(static_cast<std::size_t>(round % 523));
        pool.Run(TakePieces, SharedParts{&taken}, round % (num_threads + 2) + 1);
        for (const int times : taken) CheckTrue(times == 1, "each part once");
    }
}

// Workers that take turns: each goes through its own span in order, then takes from the back half
// of what is left of the other's.
void TestOrderOfSpans() {
    Region region(2);
    Worker first(region, 0, 2), second(region, 1, 2);
    constexpr std::int64_t kSize = 12;
    CheckTrue(first.Start(kSize) == 0 && second.Start(kSize) == 6, "starts");
    for (const std::int64_t want : {0, 1, 2, 3, 4, 5}) {
        CheckTrue(first.Take(kSize).first == want, "the own span goes forward");
    }
    CheckTrue(second.Take(kSize).first == 6, "another's own span");
    const Piece half = first.Take(kSize), rest = first.Take(kSize);
    CheckTrue(half.first == 9 && half.last == 12, "half of what is left, in order");
    CheckTrue(rest.first == 8 && rest.last == 9, "half of that, before it");
    CheckTrue(second.Take(kSize).first == 7, "the own span is not given away");
    for (Worker* worker : {&first, &second}) {
        const Piece none = worker->Take(kSize);
        CheckTrue(none.first == none.last, "nothing is left");
    }
}

// More workers than there are spans share them.
void TestManyWorkers() {
    Spans spans(150);
    constexpr std::int64_t kSize = 1000;
    std::vector<int> taken(kSize);
    for (bool found = true; found;) {
        found = false;
        for (int index = 0; index < 150; ++index) {
            const Piece piece = spans.Take(index, kSize);
            found = found || piece.first < piece.last;
            for (std::int64_t i = piece.first; i < piece.last; ++i) {
                ++taken[static_cast<std::size_t>(i)];
            }
        }
    }
    for (const int times : taken) CheckTrue(times == 1, "each part once");
}

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    for (const int num_threads : {1, 2, 3, 5}) {
        tokenlight::cpu::TestTickets(num_threads);
        tokenlight::cpu::TestSpans(num_threads);
    }
    tokenlight::cpu::TestOrderOfSpans();
    tokenlight::cpu::TestManyWorkers();
    return 0;
}
