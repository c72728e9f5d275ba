// SPDX-License-Identifier: Apache-2.0

inline void RotateHead(float* x, const float* cos, const float* sin, int half) {
    const int full = half / kLanes * kLanes;
    const int rest = half - full;
    for (int i = 0; i < full; i += kLanes) {
        const Vec a = Load(x + i), b = Load(x + half + i), c = Load(cos + i), s = Load(sin + i);
        Store(x + i, Sub(Mul(a, c), Mul(b, s)));
        Store(x + half + i, Fma(b, c, Mul(a, s)));
    }
    if (rest > 0) {
        const Vec a = LoadN(x + full, rest), b = LoadN(x + half + full, rest);
        const Vec c = LoadN(cos + full, rest), s = LoadN(sin + full, rest);
        StoreN(x + full, Sub(Mul(a, c), Mul(b, s)), rest);
        StoreN(x + half + full, Fma(b, c, Mul(a, s)), rest);
    }
}

inline void RopeTokens(const RopeArgs& a, Worker& worker) {
    const int half = static_cast<int>(a.rotated / 2);
    for (Piece rows = worker.TakeRows(a.num_tokens); rows.first < rows.last;
         rows = worker.TakeRows(a.num_tokens)) {
        for (std::int64_t token = rows.first; token < rows.last; ++token) {
            const float* cos = a.cos_sin + token * a.rotated;
            for (std::int64_t h = 0; h < a.num_q_heads; ++h) {
                RotateHead(a.q + token * a.q_stride + h * a.head_dim, cos, cos + half, half);
            }
            for (std::int64_t h = 0; h < a.num_k_heads; ++h) {
                RotateHead(a.k + token * a.k_stride + h * a.head_dim, cos, cos + half, half);
            }
        }
    }
}
