// SPDX-License-Identifier: Apache-2.0

template <class T>
inline void ConvertRow(T* out, const float* x, int width) {
    const int full = width / kLanes * kLanes;
    for (int i = 0; i < full; i += kLanes) Store(out + i, Load(x + i));
    if (full < width) StoreN(out + full, LoadN(x + full, width - full), width - full);
}

// Rounds to the nearest multiple of the largest magnitude / 127.
inline void ConvertRow(Int8* out, const float* x, int width) {
    float most = 0.0F;
    bool is_finite = true;
    for (int i = 0; i < width; ++i) {
        const float magnitude = std::fabs(x[i]);
        is_finite = is_finite && magnitude < INFINITY;
        most = Most(most, magnitude);
    }
    // Of what is no number nothing must be made that looks like one.
    const float scale = is_finite ? most / 127.0F : NAN;
    const float inverse = is_finite && most > 1e-30F ? 127.0F / most : 0.0F;
    for (int i = 0; i < width; ++i) {
        const float q = is_finite ? std::nearbyintf(x[i] * inverse) : 0.0F;
        out[i].value = static_cast<std::int8_t>(q);
    }
    std::memcpy(out + width, &scale, sizeof(scale));
}

template <class T>
inline void WriteKvTokens(const WriteKvArgs& a, Worker& worker) {
    for (Piece rows = worker.TakeRows(a.batch.num_tokens); rows.first < rows.last;
         rows = worker.TakeRows(a.batch.num_tokens)) {
        std::int64_t request = 0;
        for (std::int64_t t = rows.first; t < rows.last; ++t) {
            while (t >= a.batch.query_starts[request + 1]) ++request;
            const std::int64_t position = a.positions[t];
            const std::int64_t block = a.batch.Row(request)[position / a.batch.block_tokens];
            const std::int64_t row = position % a.batch.block_tokens;
            for (std::int64_t h = 0; h < a.num_heads; ++h) {
                const std::int64_t at = ((block * a.num_heads + h) * a.batch.block_tokens + row) *
                                        (a.head_dim + kRowExtra<T>);
                const int width = static_cast<int>(a.head_dim);
                ConvertRow(static_cast<T*>(a.k_cache) + at, a.k + t * a.k_stride + h * a.head_dim,
                           width);
                ConvertRow(static_cast<T*>(a.v_cache) + at, a.v + t * a.v_stride + h * a.head_dim,
                           width);
            }
        }
    }
}
