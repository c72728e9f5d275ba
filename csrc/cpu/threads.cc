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

// The state of a region: how many helpers are inside, and whether no more may enter.
namespace gate {
constexpr std::uint32_t kClosed = 1U << 31;
constexpr std::uint32_t kInside = kClosed - 1;
}  // namespace gate

struct ThreadPool::Crew {
    // Written by Run while no helper is inside, read by helpers that have entered.
    Job job = nullptr;
    const void* args = nullptr;
    Region* region = nullptr;
    int count = 0;

    std::atomic<std::uint32_t> state = gate::kClosed;
    // Raised for each region, for sleeping helpers to look at; negative once they are dismissed.
    std::atomic<int> epoch = 0;
    // Raised when a helper leaves a closed region.
    std::atomic<int> num_left = 0;

    bool Enter() {
        std::uint32_t now = state.load(std::memory_order_acquire);
        while ((now & gate::kClosed) == 0) {
            if (state.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) return true;
        }
        return false;
    }

    void Leave() {
        const std::uint32_t before = state.fetch_sub(1, std::memory_order_acq_rel);
        if ((before & gate::kClosed) == 0) return;
        num_left.fetch_add(1, std::memory_order_release);
        num_left.notify_one();
    }

    void Help(int index) {
        int seen = 0;
        for (;;) {
            const int now = AwaitChange(epoch, seen);
            if (now == seen) continue;
            if (now < 0) return;
            seen = now;
            if (!Enter()) continue;
            if (index < count) {
                Worker worker(*region, index, count);
                job(args, worker);
            }
            Leave();
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
        crew_->epoch.store(-1, std::memory_order_release);
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
    const std::int64_t wanted = std::min<std::int64_t>(num_threads(), max_workers);
    if (wanted <= 1) {
        Region region(1);
        Worker alone(region, 0, 1);
        job(args, alone);
        return;
    }
    Region region(static_cast<int>(wanted));
    std::lock_guard lock(mutex_);
    if (crew_ == nullptr) Start(num_threads() - 1);
    Crew& crew = *crew_;
    crew.job = job;
    crew.args = args;
    crew.region = &region;
    crew.count = static_cast<int>(wanted);
    crew.state.store(0, std::memory_order_release);
    // Skips the negative numbers and 0 when it wraps.
    crew.epoch.store(std::max(1, crew.epoch.load(std::memory_order_relaxed) % 0x40000000 + 1),
                     std::memory_order_release);
    crew.epoch.notify_all();
    Worker first(region, 0, crew.count);
    job(args, first);
    crew.state.fetch_or(gate::kClosed, std::memory_order_acq_rel);
    for (;;) {
        const int left = crew.num_left.load(std::memory_order_acquire);
        if ((crew.state.load(std::memory_order_acquire) & gate::kInside) == 0) return;
        AwaitChange(crew.num_left, left);
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
