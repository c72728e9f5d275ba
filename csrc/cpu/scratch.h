// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace tokenlight::cpu {

// Memory of the calling thread for the length of one op, aligned to 64 bytes. It grows to the
// largest request and is kept; the next call on this thread invalidates the last.
void* ThreadScratch(std::size_t num_bytes);

// Bytes to leave between the memory of one worker and of the next. A core that reads its own in
// steps of a panel's block reads ahead by many of them: past the end, it would take lines from
// another's cache that the other keeps using.
constexpr std::int64_t kApartBytes = 65536;

// From now on, fill scratch with 0xFF (NaN as floats) before it is handed out, so that a test sees
// what reads it unset.
void PoisonScratch(bool poison);

}  // namespace tokenlight::cpu
