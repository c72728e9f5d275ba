// SPDX-License-Identifier: Apache-2.0
// Each output is one register of partial sums along k, added up at the end: the same for every
// blocking.

constexpr int kColumns = 4;

// R rows of x by C rows of the weight.
template <class T, int R, int C>
inline void DenseBlock(const LinearArgs& a, const float* x, const T* w, std::int64_t row,
                       std::int64_t column) {
    Vec sum[R][C];
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) sum[r][c] = Zero();
    }
    const std::int64_t full = a.k / kLanes * kLanes;
    for (std::int64_t i = 0; i < full; i += kLanes) {
        Vec wi[C];
        for (int c = 0; c < C; ++c) wi[c] = Load(w + c * a.k + i);
        for (int r = 0; r < R; ++r) {
            const Vec xi = Load(x + r * a.x_stride + i);
            for (int c = 0; c < C; ++c) sum[r][c] = Fma(xi, wi[c], sum[r][c]);
        }
    }
    if (full < a.k) {
        const int rest = static_cast<int>(a.k - full);
        for (int c = 0; c < C; ++c) {
            const Vec wi = LoadN(w + c * a.k + full, rest);
            for (int r = 0; r < R; ++r) {
                sum[r][c] = Fma(LoadN(x + r * a.x_stride + full, rest), wi, sum[r][c]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) {
            const float y = SumLanes(sum[r][c]);
            a.y[(row + r) * a.n + column + c] = a.bias == nullptr ? y : y + a.bias[column + c];
        }
    }
}

template <class T, int R>
inline void DenseRows(const LinearArgs& a, std::int64_t row, std::int64_t first,
                      std::int64_t last) {
    const float* x = a.x + row * a.x_stride;
    const T* w = static_cast<const T*>(a.weight);
    std::int64_t column = first;
    for (; last - column >= kColumns; column += kColumns) {
        DenseBlock<T, R, kColumns>(a, x, w + column * a.k, row, column);
    }
    for (; column < last; ++column) DenseBlock<T, R, 1>(a, x, w + column * a.k, row, column);
}

template <class T>
inline void DenseProduct(const LinearArgs& a, Worker& worker) {
    // A chunk's weights stay in the second-level cache while all rows pass.
    const std::int64_t fitting = (384 << 10) / (a.k * static_cast<std::int64_t>(sizeof(T)) + 1);
    const std::int64_t fair = (a.n + 4 * worker.count() - 1) / (4 * worker.count());
    const std::int64_t width = Most<std::int64_t>(8, Least(fitting, fair) / 8 * 8);
    const std::int64_t num_chunks = (a.n + width - 1) / width;
    for (std::int64_t chunk = worker.Next(); chunk < num_chunks; chunk = worker.Next()) {
        const std::int64_t first = chunk * width;
        const std::int64_t last = Least(a.n, first + width);
        std::int64_t row = 0;
        for (; a.num_rows - row >= 4; row += 4) DenseRows<T, 4>(a, row, first, last);
        for (; a.num_rows - row >= 2; row += 2) DenseRows<T, 2>(a, row, first, last);
        for (; a.num_rows - row >= 1; row += 1) DenseRows<T, 1>(a, row, first, last);
    }
}
