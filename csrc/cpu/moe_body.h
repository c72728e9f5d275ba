// SPDX-License-Identifier: Apache-2.0

inline Vec Gated(const MoeArgs& a, Vec gate, Vec up) {
    if (a.limit != 0.0F) {
        gate = Min(gate, Set(a.limit));
        up = Max(Min(up, Set(a.limit)), Set(-a.limit));
    }
    const Vec open = Mul(gate, Sigmoid(Mul(Set(a.alpha), gate)));
    return Mul(open, Add(up, Set(a.shift)));
}

// One row: `gate` and `up` may lie anywhere.
inline void GateRow(const MoeArgs& a, const float* gate, const float* up, std::int64_t width,
                    float* out) {
    const std::int64_t full = width / kLanes * kLanes;
    for (std::int64_t i = 0; i < full; i += kLanes) {
        Store(out + i, Gated(a, Load(gate + i), Load(up + i)));
    }
    const int rest = static_cast<int>(width - full);
    if (rest == 0) return;
    StoreN(out + full, Gated(a, LoadN(gate + full, rest), LoadN(up + full, rest)), rest);
}

inline void ScaleRow(const float* x, float scale, std::int64_t width, float* out) {
    const std::int64_t full = width / kLanes * kLanes;
    for (std::int64_t i = 0; i < full; i += kLanes) Store(out + i, Mul(Load(x + i), Set(scale)));
    const int rest = static_cast<int>(width - full);
    if (rest > 0) StoreN(out + full, Mul(LoadN(x + full, rest), Set(scale)), rest);
}

// A token's rows of `outer` added up, in the order of its choices.
inline void SumRows(const MoeArgs& a, const std::int32_t* row_of, const float* outer,
                    std::int64_t token) {
    float* out = a.out + token * a.dim;
    for (std::int64_t i = 0; i < a.dim; i += kLanes) {
        const int count = static_cast<int>(Least<std::int64_t>(kLanes, a.dim - i));
        Vec sum = Zero();
        for (std::int64_t c = 0; c < a.per_token; ++c) {
            const std::int32_t row = row_of[token * a.per_token + c];
            if (row < 0) continue;
            const float* from = outer + row * a.dim + i;
            sum = Add(sum, count == kLanes ? Load(from) : LoadN(from, count));
        }
        if (count == kLanes) {
            Store(out + i, sum);
        } else {
            StoreN(out + i, sum, count);
        }
    }
}
