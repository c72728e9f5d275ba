// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace tokenlight::cpu {

// Memory of the calling thread for the length of one op, aligned to 64 bytes. It grows to the
// largest request and is kept; the next call on this thread invalidates the last.
void* ThreadScratch(std::size_t num_bytes);

// From now on, fill scratch with 0xFF (NaN as floats) before it is handed out, so that a test sees
// what reads it unset.
void PoisonScratch(bool poison);

}  // namespace tokenlight::cpu
