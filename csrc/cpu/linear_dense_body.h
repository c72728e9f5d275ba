// SPDX-License-Identifier: Apache-2.0
// Each output is one register of partial sums along k, added up at the end: the same for every
// blocking.

constexpr int kColumns = 4;
// Rows so few that they wait for memory: they ask for the next columns' weights, where the machine
// would not, as each is a stream that ends.
constexpr int kWaitingRows = 2;
// Rows whose sums the registers hold.
constexpr int kDenseRows = kMaxTileRows >= 16 ? 6 : 4;

// Rows of plain numbers.
template <class T>
struct PlainRows {
    static constexpr std::int64_t Bytes(std::int64_t k) {
        return k * static_cast<std::int64_t>(sizeof(T));
    }

    // Adds the products of R rows of x and C rows of the weight, which begin at `first`.
    template <int R, int C>
    static void Add(const LinearArgs& a, const float* x, const std::uint8_t* first, Vec sum[R][C]) {
        const T* w = reinterpret_cast<const T*>(first);
        const std::int64_t full = a.k / kLanes * kLanes;
        for (std::int64_t i = 0; i < full; i += kLanes) {
            if constexpr (R <= kWaitingRows) {
                for (int c = 0; c < C; ++c) Prefetch(w + (C + c) * a.k + i);
            }
            Vec wi[C];
            for (int c = 0; c < C; ++c) wi[c] = Load(w + c * a.k + i);
            for (int r = 0; r < R; ++r) {
                const Vec xi = Load(x + r * a.x_stride + i);
                for (int c = 0; c < C; ++c) sum[r][c] = Fma(xi, wi[c], sum[r][c]);
            }
        }
        if (full == a.k) return;
        const int rest = static_cast<int>(a.k - full);
        for (int c = 0; c < C; ++c) {
            const Vec wi = LoadN(w + c * a.k + full, rest);
            for (int r = 0; r < R; ++r) {
                sum[r][c] = Fma(LoadN(x + r * a.x_stride + full, rest), wi, sum[r][c]);
            }
        }
    }
};

// Rows of blocks: a scale, then G numbers.
template <int G>
struct Fp8Rows {
    static constexpr std::int64_t kBlockBytes = 4 + G;

    static constexpr std::int64_t Bytes(std::int64_t k) { return k / G * kBlockBytes; }

    template <int R, int C>
    static void Add(const LinearArgs& a, const float* x, const std::uint8_t* w, Vec sum[R][C]) {
        const std::int64_t row_bytes = Bytes(a.k);
        for (std::int64_t b = 0; b < a.k; b += G, x += G, w += kBlockBytes) {
            Vec scale[C];
            for (int c = 0; c < C; ++c) {
                float value;
                std::memcpy(&value, w + c * row_bytes, sizeof(value));
                scale[c] = Set(value * kFp8Unit);
            }
            if constexpr (R <= kWaitingRows) {
                for (int i = 0; i < kBlockBytes; i += 64) {
                    for (int c = 0; c < C; ++c) Prefetch(w + (C + c) * row_bytes + i);
                }
            }
            for (int i = 0; i < G; i += kLanes) {
                Vec wi[C];
                for (int c = 0; c < C; ++c) {
                    const auto* numbers = reinterpret_cast<const Fp8*>(w + c * row_bytes + 4 + i);
                    wi[c] = Mul(Load(numbers), scale[c]);
                }
                for (int r = 0; r < R; ++r) {
                    const Vec xi = Load(x + r * a.x_stride + i);
                    for (int c = 0; c < C; ++c) sum[r][c] = Fma(xi, wi[c], sum[r][c]);
                }
            }
        }
    }
};

// R rows of x by C rows of the weight.
template <class Rows, int R, int C>
inline void DenseBlock(const LinearArgs& a, const float* x, const std::uint8_t* w, std::int64_t row,
                       std::int64_t column) {
    Vec sum[R][C];
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) sum[r][c] = Zero();
    }
    Rows::template Add<R, C>(a, x, w, sum);
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) {
            const float y = SumLanes(sum[r][c]);
            a.y[(row + r) * a.n + column + c] = a.bias == nullptr ? y : y + a.bias[column + c];
        }
    }
}

template <class Rows, int R>
inline void DenseRows(const LinearArgs& a, std::int64_t row, std::int64_t first,
                      std::int64_t last) {
    const float* x = a.x + row * a.x_stride;
    const auto* w = static_cast<const std::uint8_t*>(a.weight);
    const std::int64_t row_bytes = Rows::Bytes(a.k);
    std::int64_t column = first;
    for (; last - column >= kColumns; column += kColumns) {
        DenseBlock<Rows, R, kColumns>(a, x, w + column * row_bytes, row, column);
    }
    for (; column < last; ++column) {
        DenseBlock<Rows, R, 1>(a, x, w + column * row_bytes, row, column);
    }
}

template <class Rows>
inline void DenseProduct(const LinearArgs& a, Worker& worker) {
    // A chunk's weights stay in the second-level cache while all rows pass.
    const std::int64_t fitting = (384 << 10) / (Rows::Bytes(a.k) + 1);
    const std::int64_t fair = (a.n + 4 * worker.count() - 1) / (4 * worker.count());
    const std::int64_t width = Most<std::int64_t>(8, Least(fitting, fair) / 8 * 8);
    const std::int64_t num_chunks = (a.n + width - 1) / width;
    for (std::int64_t chunk = worker.Next(); chunk < num_chunks; chunk = worker.Next()) {
        const std::int64_t first = chunk * width;
        const std::int64_t last = Least(a.n, first + width);
        std::int64_t row = 0;
        for (; a.num_rows - row >= kDenseRows; row += kDenseRows) {
            DenseRows<Rows, kDenseRows>(a, row, first, last);
        }
        for (; a.num_rows - row >= 4; row += 4) DenseRows<Rows, 4>(a, row, first, last);
        for (; a.num_rows - row >= 2; row += 2) DenseRows<Rows, 2>(a, row, first, last);
        for (; a.num_rows - row >= 1; row += 1) DenseRows<Rows, 1>(a, row, first, last);
    }
}

template <class T>
inline void PlainProduct(const LinearArgs& a, Worker& worker) {
    DenseProduct<PlainRows<T>>(a, worker);
}

template <int G>
inline void Fp8Product(const LinearArgs& a, Worker& worker) {
    DenseProduct<Fp8Rows<G>>(a, worker);
}
