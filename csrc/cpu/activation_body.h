// SPDX-License-Identifier: Apache-2.0

struct Silu {
    static constexpr bool kGated = true;
    static Vec Apply(Vec x, float) { return Mul(x, Sigmoid(x)); }
};

struct GeluTanh {
    static constexpr bool kGated = true;
    // x (1 + tanh u) / 2 = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
    static Vec Apply(Vec x, float) {
        const Vec cubic = Fma(Mul(Mul(x, x), Set(0.044715F)), x, x);
        return Mul(x, Sigmoid(Mul(cubic, Set(1.59576912F))));
    }
};

struct Cap {
    static constexpr bool kGated = false;
    static Vec Apply(Vec x, float cap) { return Mul(Set(cap), Tanh(Mul(x, Set(1.0F / cap)))); }
};

template <class F>
inline void ActivationRow(float* out, const float* x, std::int64_t width, float cap) {
    const std::int64_t full = width / kLanes * kLanes;
    const int rest = static_cast<int>(width - full);
    for (std::int64_t i = 0; i < full; i += kLanes) {
        Vec y = F::Apply(Load(x + i), cap);
        if constexpr (F::kGated) y = Mul(y, Load(x + width + i));
        Store(out + i, y);
    }
    if (rest > 0) {
        Vec y = F::Apply(LoadN(x + full, rest), cap);
        if constexpr (F::kGated) y = Mul(y, LoadN(x + width + full, rest));
        StoreN(out + full, y, rest);
    }
}

template <class F>
inline void ActivationRows(const ActivationArgs& a, Worker& worker) {
    for (Piece rows = worker.TakeRows(a.num_rows); rows.first < rows.last;
         rows = worker.TakeRows(a.num_rows)) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            ActivationRow<F>(a.out + row * a.width, a.x + row * a.x_stride, a.width, a.cap);
        }
    }
}

inline void SiluRows(const ActivationArgs& a, Worker& worker) { ActivationRows<Silu>(a, worker); }
inline void GeluTanhRows(const ActivationArgs& a, Worker& worker) {
    ActivationRows<GeluTanh>(a, worker);
}
inline void CapRows(const ActivationArgs& a, Worker& worker) { ActivationRows<Cap>(a, worker); }
