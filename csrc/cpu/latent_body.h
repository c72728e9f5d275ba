// SPDX-License-Identifier: Apache-2.0

#include "cpu/write_kv_body.h"

template <class T>
inline void WriteLatentTokens(const WriteLatentArgs& a, Worker& worker) {
    const std::int64_t width = a.latent_dim + a.rotated_dim;
    for (Piece rows = worker.TakeRows(a.batch.num_tokens); rows.first < rows.last;
         rows = worker.TakeRows(a.batch.num_tokens)) {
        std::int64_t request = 0;
        for (std::int64_t t = rows.first; t < rows.last; ++t) {
            while (t >= a.batch.query_starts[request + 1]) ++request;
            const std::int64_t position = a.positions[t];
            const std::int64_t block = a.batch.Row(request)[position / a.batch.block_tokens];
            const std::int64_t row = position % a.batch.block_tokens;
            T* out = static_cast<T*>(a.cache) + (block * a.batch.block_tokens + row) * width;
            ConvertRow(out, a.latent + t * a.latent_stride, static_cast<int>(a.latent_dim));
            ConvertRow(out + a.latent_dim, a.rotated + t * a.rotated_stride,
                       static_cast<int>(a.rotated_dim));
        }
    }
}
