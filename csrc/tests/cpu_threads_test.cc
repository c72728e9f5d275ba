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

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    for (const int num_threads : {1, 2, 3, 5}) tokenlight::cpu::TestTickets(num_threads);
    return 0;
}
