// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu/pack.h"

namespace tokenlight::cpu {

// Weights that are packed in order, on a thread of the queue's own and the pool's helpers, while
// the caller goes on to the next. Rows and results belong to the caller, who keeps them until
// Finish. Where one thread is all that kernels may use, Add packs at once.
//
// Thread rules: one thread calls Add and Finish.
class PackQueue {
  public:
    PackQueue() = default;
    PackQueue(const PackQueue&) = delete;
    PackQueue& operator=(const PackQueue&) = delete;
    ~PackQueue() { Finish(); }

    // Throws what CheckPack throws, and then has taken nothing.
    void Add(std::uint8_t* out, std::vector<const std::uint8_t*> rows, std::int64_t num_blocks,
             WeightFormat format);

    // Returns once everything that was added is packed.
    void Finish();

  private:
    struct Waiting {
        std::uint8_t* out;
        std::vector<const std::uint8_t*> rows;
        std::int64_t num_blocks;
        WeightFormat format;
    };

    static void PackOne(const Waiting& one);
    void Work();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Waiting> waiting_;
    bool is_closed_ = false;
    std::thread thread_;
};

}  // namespace tokenlight::cpu
