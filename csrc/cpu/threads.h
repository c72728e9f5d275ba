// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu/spans.h"

namespace tokenlight::cpu {

// What the workers of a region share.
struct Region {
    explicit Region(int num_workers) : spans(num_workers) {}

    std::atomic<std::int64_t> next = 0;
    Spans spans;
};

// Rows that a worker takes at a time, in ops whose rows are cheap.
constexpr std::int64_t kRowsTogether = 16;

// One thread's place in a parallel region: kernels are written as what each worker does, until
// there is no more for it. A worker may come late or not at all, so none may wait for another. A
// region hands out its work by Next or by Take, once.
class Worker {
  public:
    Worker(Region& region, int index, int count) : region_(region), index_(index), count_(count) {}

    // Below count; no two workers of a region have the same.
    int index() const { return index_; }
    int count() const { return count_; }

    // Hands out 0, 1, 2, ..., each to one worker.
    std::int64_t Next() { return region_.next.fetch_add(1, std::memory_order_relaxed); }

    // As Spans has it.
    Piece Take(std::int64_t size) { return region_.spans.Take(index_, size); }
    std::int64_t Start(std::int64_t size) const { return region_.spans.Start(index_, size); }

    // Some of so many rows. Ops that share rows out so give one worker the same rows, which its
    // core then has at hand; another's may be far away.
    Piece TakeRows(std::int64_t num_rows) {
        const Piece piece = Take((num_rows + kRowsTogether - 1) / kRowsTogether);
        const std::int64_t last = piece.last * kRowsTogether;
        return {piece.first * kRowsTogether, last < num_rows ? last : num_rows};
    }

  private:
    Region& region_;
    const int index_;
    const int count_;
};

using Job = void (*)(const void* args, Worker& worker);

// Threads that outlive calls. The caller of Run is worker 0, and does all of the work itself if the
// others are not awake in time: a core that is busy elsewhere delays no call. An idle thread spins
// for some tens of microseconds, so that the next call of a step finds it awake, and then sleeps in
// the kernel.
//
// Thread rules: any thread may call Run; calls take turns. A child after fork() starts threads of
// its own.
class ThreadPool {
  public:
    // The process's pool; as many threads as physical cores in the affinity mask, until
    // SetNumThreads.
    static ThreadPool& Get();

    int num_threads() const { return num_threads_.load(std::memory_order_relaxed); }
    void SetNumThreads(int num_threads);

    // Runs `job` on at most `max_workers` workers. Returns when the caller has found nothing more
    // to do and the others that had begun have finished. `job` must not throw.
    void Run(Job job, const void* args, std::int64_t max_workers);

    template <class Args>
    void Run(void (*job)(const Args&, Worker&), const Args& args, std::int64_t max_workers) {
        const Call<Args> call{job, args};
        Run([](const void* c, Worker& worker) { (*static_cast<const Call<Args>*>(c))(worker); },
            &call, max_workers);
    }

  private:
    template <class Args>
    struct Call {
        void (*job)(const Args&, Worker&);
        const Args& args;
        void operator()(Worker& worker) const { job(args, worker); }
    };
    // What sleeping threads look at; kept alive by them, so that a pool may drop them without
    // waiting.
    struct Crew;

    explicit ThreadPool(int num_threads);
    void Start(int num_helpers);

    std::mutex mutex_;
    std::atomic<int> num_threads_;
    std::shared_ptr<Crew> crew_;
};

// Physical cores that this process may run on (its affinity mask, hyperthread siblings counted
// once).
int NumUsableCores();

}  // namespace tokenlight::cpu
