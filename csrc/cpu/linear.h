// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/threads.h"
#include "cpu/weights.h"

namespace tokenlight::cpu {

// y[t] = W x[t] + bias, for t < num_rows. A row of y has the same bits whatever else is in the
// call.
// Many activations are rounded before the first product, few by each worker for itself.
enum class LinearPhase { kRound, kMultiply };

struct LinearArgs {
    float* y;  // [num_rows, n], contiguous
    const float* x;
    const void* weight;  // [n, k] dense, or n * RowBytes bytes
    const float* bias;   // [n] or null
    std::int64_t num_rows;
    std::int64_t n;
    std::int64_t k;
    std::int64_t x_stride;  // floats between rows of x
    WeightFormat format;
    void* scratch;  // LinearScratchBytes bytes, aligned to 64
    // y[t] is then silu(gate) * up, [num_rows, n / 2]: gate the first half of W x + bias, up the
    // rest. The bits are those of SiluMul of the product.
    bool is_gated = false;
    // Of activations under Q4_K, Q5_K, Q6_K and Q8_0; else to 15 bits, as under other quantized
    // formats.
    bool rounds_to_bytes = false;

    std::int64_t OutputColumns() const { return is_gated ? n / 2 : n; }
};

// For at most `num_workers` workers. Reads no pointer.
std::size_t LinearScratchBytes(const LinearArgs& args, int num_workers);

void Linear(const LinearArgs& args, ThreadPool& pool, std::int64_t max_workers);

// The same by the calling thread alone, for a worker of another job. Scratch as for one worker.
void LinearAlone(const LinearArgs& args);

// A job for the pool: one phase of Linear.
struct LinearJob {
    const LinearArgs& args;
    LinearPhase phase;
};

// Linear by kind of weight: dense, or in blocks of 32 or 256.
void DenseLinear(const LinearJob& job, Worker& worker);
void QuantizedLinear32(const LinearJob& job, Worker& worker);
void QuantizedLinear256(const LinearJob& job, Worker& worker);

}  // namespace tokenlight::cpu
