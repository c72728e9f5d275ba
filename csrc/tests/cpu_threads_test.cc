// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "cpu/threads.h"
#include "tests/cpu_check.h"

namespace tokenlight::cpu {
namespace {

struct Phases {
    std::vector<std::int64_t>* sums;  // one per phase
    std::vector<int>* taken;          // one per ticket of a phase
    int num_phases;
};

// In each phase, every ticket is taken once; after Sync, every worker sees all of the phase before.
void RunPhases(const Phases& a, Worker& worker) {
    const auto num_tickets = static_cast<std::int64_t>(a.taken->size());
    for (int phase = 0; phase < a.num_phases; ++phase) {
        for (std::int64_t i = worker.Next(); i < num_tickets; i = worker.Next()) {
            (*a.taken)[static_cast<std::size_t>(i)] += phase + 1;
        }
        worker.Sync();
        const std::int64_t sum = std::accumulate(a.taken->begin(), a.taken->end(), std::int64_t{0});
        if (worker.index() == 0) (*a.sums)[static_cast<std::size_t>(phase)] = sum;
        worker.Sync();
    }
}

void TestPhases(int num_threads) {
    ThreadPool& pool = ThreadPool::Get();
    pool.SetNumThreads(num_threads);
    for (int round = 0; round < 200; ++round) {
        constexpr int kPhases = 5;
        std::vector<std::int64_t> sums(kPhases);
        std::vector<int> taken(37);
        pool.Run(RunPhases, Phases{&sums, &taken, kPhases}, round % (num_threads + 2) + 1);
        for (int phase = 0; phase < kPhases; ++phase) {
            const int of_each = (phase + 1) * (phase + 2) / 2;
            CheckTrue(sums[static_cast<std::size_t>(phase)] == 37 * of_each, "each ticket once");
        }
    }
}

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    for (const int num_threads : {1, 2, 3, 5}) tokenlight::cpu::TestPhases(num_threads);
    return 0;
}
