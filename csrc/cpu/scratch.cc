// SPDX-License-Identifier: Apache-2.0
#include "cpu/scratch.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>

namespace tokenlight::cpu {
namespace {

constexpr std::align_val_t kAlignment{64};

struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlignment); }
};

std::atomic<bool> g_poison = false;

}  // namespace

void* ThreadScratch(std::size_t num_bytes) {
    thread_local std::unique_ptr<std::byte, Free> memory;
    thread_local std::size_t capacity = 0;
    if (num_bytes > capacity) {
        memory = nullptr;
        capacity = 0;
        memory.reset(static_cast<std::byte*>(::operator new(num_bytes, kAlignment)));
        capacity = num_bytes;
    }
    if (g_poison && num_bytes > 0) std::memset(memory.get(), 0xFF, num_bytes);
    return memory.get();
}

void PoisonScratch(bool poison) { g_poison = poison; }

}  // namespace tokenlight::cpu
