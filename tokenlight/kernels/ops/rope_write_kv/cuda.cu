// SPDX-License-Identifier: Apache-2.0
// Norm, rotation and store of a token's heads: a warp per head of queries, keys and values.
#include "prelude.cuh"

struct RopeParams {
    bf16* q;           // [T, H, d], tokens q_stride apart; in place
    const bf16* k;     // [T, K, d]
    const bf16* v;
    const float* cos_sin;  // [T, r]
    bf16* k_cache;     // [B, K, P, d]
    bf16* v_cache;
    const int* positions;
    const int* query_starts;
    const int* block_table;
    const int* slots;
    const bf16* q_gain;  // [d], or null for no norm
    const bf16* k_gain;
    int num_requests, num_heads, num_kv_heads, head_dim, rotated, block_shift;
    int num_blocks, num_slots, num_columns, q_stride, k_stride, v_stride, table_stride;
    float eps;
};

constexpr int kWarps = 4;
constexpr int kMaxPairs = 4;  // of dimensions, per lane: heads of 256

// Where a token's key or value goes; null if nowhere. Positions and tables are older than the kernel
// ahead: they are read while it runs.
DEVICE bf16* FindRow(const RopeParams& p, int token, int kv_head, bf16* cache) {
    // The request is the number of those that end at or before the token.
    const int position = p.positions[token];
    int request = 0;
    for (int base = 0; base < p.num_requests; base += 32) {
        const int r = base + threadIdx.x % 32;
        const bool is_before = r < p.num_requests && p.query_starts[r + 1] <= token;
        request += __popc(__ballot_sync(FULL_WARP, is_before));
    }
    if (request == p.num_requests) return nullptr;  // a token that pads the step
    const int slot = p.slots[request], column = position >> p.block_shift;
    if (slot < 0 || slot >= p.num_slots || position < 0 || column >= p.num_columns) return nullptr;
    const int block = p.block_table[(size_t)slot * p.table_stride + column];
    if (block < 0 || block >= p.num_blocks) return nullptr;
    const int in_block = position & ((1 << p.block_shift) - 1);
    return cache + ((((size_t)block * p.num_kv_heads + kv_head) << p.block_shift) + in_block) *
                       p.head_dim;
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    rope_write_kv(const __grid_constant__ RopeParams p) {
    const int lane = threadIdx.x % 32, token = blockIdx.x;
    const int head = blockIdx.y * kWarps + threadIdx.x / 32;
    const bool is_query = head < p.num_heads;
    const bool is_key = !is_query && head < p.num_heads + p.num_kv_heads;
    const int kv_head = head - p.num_heads - (is_key ? 0 : p.num_kv_heads);
    const bf16* gain = is_query ? p.q_gain : is_key ? p.k_gain : nullptr;
    const int half = is_query || is_key ? p.rotated / 2 : 0;
    LetNextStart();
    if (head >= p.num_heads + 2 * p.num_kv_heads) return;

    // A lane's pairs: a dimension and the one it turns with, then what does not turn.
    int first[kMaxPairs], second[kMaxPairs];
    float gain_first[kMaxPairs], gain_second[kMaxPairs];
#pragma unroll
    for (int i = 0; i < kMaxPairs; ++i) {
        const int pair = lane + 32 * i;
        first[i] = pair < half ? pair : 2 * pair;
        second[i] = pair < half ? pair + half : 2 * pair + 1;
        gain_first[i] = gain_second[i] = 1.0f;
        if (gain && 2 * pair < p.head_dim) {
            gain_first[i] = Widen(gain[first[i]]);
            gain_second[i] = Widen(gain[second[i]]);
        }
    }
    bf16* to = p.q + (size_t)token * p.q_stride + head * p.head_dim;
    if (!is_query) to = FindRow(p, token, kv_head, is_key ? p.k_cache : p.v_cache);
    WaitForInputs();
    if (!to) return;

    const bf16* from = is_query ? p.q + (size_t)token * p.q_stride + head * p.head_dim
                       : is_key ? p.k + (size_t)token * p.k_stride + kv_head * p.head_dim
                                : p.v + (size_t)token * p.v_stride + kv_head * p.head_dim;
    float a[kMaxPairs], b[kMaxPairs], cosine[kMaxPairs], sine[kMaxPairs], squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kMaxPairs; ++i) {
        const int pair = lane + 32 * i;
        a[i] = b[i] = sine[i] = 0.0f;
        cosine[i] = 1.0f;
        if (2 * pair >= p.head_dim) continue;
        a[i] = Widen(from[first[i]]);
        b[i] = Widen(from[second[i]]);
        if (pair < half) {
            cosine[i] = p.cos_sin[(size_t)token * p.rotated + pair];
            sine[i] = p.cos_sin[(size_t)token * p.rotated + half + pair];
        }
        squares += a[i] * a[i] + b[i] * b[i];
    }

    float scale = 1.0f;
    if (gain) scale = rsqrtf(WarpSum(squares) / (float)p.head_dim + p.eps);
#pragma unroll
    for (int i = 0; i < kMaxPairs; ++i) {
        if (2 * (lane + 32 * i) >= p.head_dim) continue;
        const float x = a[i] * scale * gain_first[i], y = b[i] * scale * gain_second[i];
        to[first[i]] = Narrow(x * cosine[i] - y * sine[i]);
        to[second[i]] = Narrow(y * cosine[i] + x * sine[i]);
    }
}
