// SPDX-License-Identifier: Apache-2.0
#include "cpu/pack_queue.h"

#include <utility>

namespace tokenlight::cpu {
namespace {

// Below this a second thread costs more than it brings.
constexpr std::int64_t kTilesPerWorker = 4;

PackArgs ArgsOf(std::uint8_t* out, const std::vector<const std::uint8_t*>& rows,
                std::int64_t num_blocks, WeightFormat format) {
    return {out, rows.data(), static_cast<std::int64_t>(rows.size()), num_blocks, format};
}

}  // namespace

void PackQueue::Add(std::uint8_t* out, std::vector<const std::uint8_t*> rows,
                    std::int64_t num_blocks, WeightFormat format) {
    CheckPack(ArgsOf(out, rows, num_blocks, format));
    Waiting one{out, std::move(rows), num_blocks, format};
    if (ThreadPool::Get().num_threads() == 1) {
        PackOne(one);
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(one));
    }
    changed_.notify_one();
    if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
}

void PackQueue::Finish() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        is_closed_ = true;
    }
    changed_.notify_one();
    thread_.join();
    is_closed_ = false;
}

void PackQueue::PackOne(const Waiting& one) {
    const PackArgs args = ArgsOf(one.out, one.rows, one.num_blocks, one.format);
    ThreadPool::Get().Run(Pack, args, args.num_rows / kTileRows / kTilesPerWorker + 1);
}

void PackQueue::Work() {
    for (;;) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return is_closed_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        const Waiting one = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        PackOne(one);
    }
}

}  // namespace tokenlight::cpu
