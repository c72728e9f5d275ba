// SPDX-License-Identifier: Apache-2.0
#include "cpu/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

namespace tokenlight::cpu {
namespace {

// About 50 us on current cores: the Python between two calls of a step is shorter.
constexpr int kSpins = 2000;

inline void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Returns once `value` is no longer `old`.
int AwaitChange(const std::atomic<int>& value, int old) {
    for (int i = 0; i < kSpins; ++i) {
        const int now = value.load(std::memory_order_acquire);
        if (now != old) return now;
        Pause();
    }
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
}

ThreadPool* g_pool = nullptr;
int g_num_threads = 0;  // what a child inherits
std::mutex g_pool_mutex;

}  // namespace

void Worker::Sync() {
    const int next_phase = phase_ + 1;
    if (count_ > 1) {
        if (region_.num_arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
            region_.num_arrived.store(0, std::memory_order_relaxed);
            region_.next[next_phase & 1].store(0, std::memory_order_relaxed);
            region_.phase.store(next_phase, std::memory_order_release);
            region_.phase.notify_all();
        } else {
            // A worker cannot be two phases behind: the one that ends the next phase waits for all.
            while (AwaitChange(region_.phase, phase_) == phase_) {
            }
        }
    } else {
        region_.next[next_phase & 1].store(0, std::memory_order_relaxed);
    }
    phase_ = next_phase;
}

struct ThreadPool::Crew {
    // Written by Run before `epoch` is raised, read by helpers after.
    Job job = nullptr;
    const void* args = nullptr;
    Region* region = nullptr;
    int count = 0;
    bool is_dismissed = false;

    std::atomic<int> epoch = 0;
    std::atomic<int> num_busy = 0;

    void Help(int index) {
        int seen = 0;
        for (;;) {
            int now = AwaitChange(epoch, seen);
            if (now == seen) continue;
            seen = now;
            if (is_dismissed) return;
            if (index < count) {
                Worker worker(*region, index, count);
                job(args, worker);
            }
            if (num_busy.fetch_sub(1, std::memory_order_acq_rel) == 1) num_busy.notify_one();
        }
    }
};

ThreadPool& ThreadPool::Get() {
    std::lock_guard lock(g_pool_mutex);
    if (g_pool == nullptr) {
        static const int registered =
            pthread_atfork([] { g_pool_mutex.lock(); }, [] { g_pool_mutex.unlock(); },
                           [] {
                               // The parent's threads do not exist here; its pool is left behind,
                               // since they may hold its mutex.
                               if (g_pool != nullptr) g_num_threads = g_pool->num_threads();
                               g_pool = nullptr;
                               g_pool_mutex.unlock();
                           });
        static_cast<void>(registered);
        g_pool = new ThreadPool(g_num_threads > 0 ? g_num_threads : NumUsableCores());
    }
    return *g_pool;
}

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {}

void ThreadPool::SetNumThreads(int num_threads) {
    std::lock_guard lock(mutex_);
    num_threads_ = std::max(1, num_threads);
    if (crew_ != nullptr) {
        crew_->is_dismissed = true;
        crew_->epoch.fetch_add(1, std::memory_order_release);
        crew_->epoch.notify_all();
        crew_ = nullptr;
    }
}

void ThreadPool::Start(int num_helpers) {
    crew_ = std::make_shared<Crew>();
    for (int i = 0; i < num_helpers; ++i) {
        std::thread([crew = crew_, i] { crew->Help(i + 1); }).detach();
    }
}

void ThreadPool::Run(Job job, const void* args, std::int64_t max_workers) {
    Region region;
    const std::int64_t wanted = std::min<std::int64_t>(num_threads(), max_workers);
    if (wanted <= 1) {
        Worker alone(region, 0, 1);
        job(args, alone);
        return;
    }
    std::lock_guard lock(mutex_);
    const int num_helpers = num_threads() - 1;
    if (crew_ == nullptr) Start(num_helpers);
    Crew& crew = *crew_;
    crew.job = job;
    crew.args = args;
    crew.region = &region;
    crew.count = static_cast<int>(std::min<std::int64_t>(num_threads(), max_workers));
    crew.num_busy.store(num_helpers, std::memory_order_relaxed);
    crew.epoch.fetch_add(1, std::memory_order_release);
    crew.epoch.notify_all();
    Worker first(region, 0, crew.count);
    job(args, first);
    for (int busy; (busy = crew.num_busy.load(std::memory_order_acquire)) != 0;) {
        AwaitChange(crew.num_busy, busy);
    }
}

int NumUsableCores() {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof(mask), &mask) != 0) {
        return std::max(1U, std::thread::hardware_concurrency());
    }
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &mask)) continue;
        std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                               "/topology/thread_siblings_list");
        std::string core;
        cores.insert(std::getline(siblings, core) ? core : "cpu " + std::to_string(cpu));
    }
    return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace tokenlight::cpu
