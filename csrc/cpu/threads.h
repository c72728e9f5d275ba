// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tokenlight::cpu {

class ThreadPool;

// What the threads of one parallel region share. A phase ends when all have called Sync.
struct Region {
    std::atomic<std::int64_t> next[2] = {0, 0};
    std::atomic<int> num_arrived = 0;
    std::atomic<int> phase = 0;
};

// One thread's place in a parallel region: kernels are written as what each worker does.
class Worker {
  public:
    Worker(Region& region, int index, int count) : region_(region), index_(index), count_(count) {}

    int index() const { return index_; }
    int count() const { return count_; }

    // Hands out 0, 1, 2, ... within the phase, each to one worker.
    std::int64_t Next() { return region_.next[phase_ & 1].fetch_add(1, std::memory_order_relaxed); }

    // Returns once every worker has called it; what they wrote before is then visible. Starts a new
    // phase.
    void Sync();

  private:
    Region& region_;
    const int index_;
    const int count_;
    int phase_ = 0;
};

using Job = void (*)(const void* args, Worker& worker);

// Threads that outlive calls. The caller of Run is worker 0. An idle thread spins for some tens of
// microseconds, so that the next call of a step finds it awake, and then sleeps in the kernel.
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

    // Runs `job` on at most `max_workers` workers and returns when all have finished. `job` must
    // not throw.
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
