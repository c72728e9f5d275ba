// SPDX-License-Identifier: Apache-2.0

// clang-format off
#include "cpu/rms_norm_body.h"
#include "cpu/rope_body.h"
#include "cpu/write_kv_body.h"
// clang-format on

// A head's place in a token's keys or values, and in the cache.
template <class T>
inline void WriteHeads(const RopeWriteKvArgs& a, std::int64_t token, std::int64_t request) {
    const WriteKvArgs& kv = a.kv;
    const int width = static_cast<int>(kv.head_dim), half = static_cast<int>(a.rotated / 2);
    const float* cos = a.cos_sin + token * a.rotated;
    const std::int64_t position = kv.positions[token];
    const std::int64_t block = kv.batch.Row(request)[position / kv.batch.block_tokens];
    const std::int64_t row = position % kv.batch.block_tokens;
    float key[kMaxHeadDim];
    for (std::int64_t h = 0; h < kv.num_heads; ++h) {
        const std::int64_t at = ((block * kv.num_heads + h) * kv.batch.block_tokens + row) *
                                (kv.head_dim + kRowExtra<T>);
        const float* k = kv.k + token * kv.k_stride + h * kv.head_dim;
        if (a.k_weight != nullptr) {
            RmsNormRow(key, k, a.k_weight, width, a.eps);
        } else {
            std::memcpy(key, k, static_cast<std::size_t>(width) * sizeof(float));
        }
        RotateHead(key, cos, cos + half, half);
        ConvertRow(static_cast<T*>(kv.k_cache) + at, key, width);
        ConvertRow(static_cast<T*>(kv.v_cache) + at, kv.v + token * kv.v_stride + h * kv.head_dim,
                   width);
    }
}

template <class T>
inline void RopeWriteKvTokens(const RopeWriteKvArgs& a, Worker& worker) {
    const int width = static_cast<int>(a.kv.head_dim), half = static_cast<int>(a.rotated / 2);
    const PagedBatch& batch = a.kv.batch;
    for (Piece rows = worker.TakeRows(batch.num_tokens); rows.first < rows.last;
         rows = worker.TakeRows(batch.num_tokens)) {
        std::int64_t request = 0;
        for (std::int64_t t = rows.first; t < rows.last; ++t) {
            while (t >= batch.query_starts[request + 1]) ++request;
            const float* cos = a.cos_sin + t * a.rotated;
            for (std::int64_t h = 0; h < a.num_q_heads; ++h) {
                float* q = a.q + t * a.q_stride + h * a.kv.head_dim;
                if (a.q_weight != nullptr) RmsNormRow(q, q, a.q_weight, width, a.eps);
                RotateHead(q, cos, cos + half, half);
            }
            WriteHeads<T>(a, t, request);
        }
    }
}
