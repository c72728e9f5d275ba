// SPDX-License-Identifier: Apache-2.0
// A format says how a tile's block becomes 8 registers of 4 x 16 weights, and how its sums become
// floats.

constexpr int kVectors = kBlockElements / 4;

struct Nibbles {
    static constexpr int kQuantBytes = 16 * kTileRows;
    static void Unpack(const std::uint8_t* quants, Bytes w[kVectors]) {
        for (int v = 0; v < kVectors / 2; ++v) {
            const Bytes packed = LoadBytes(quants + 64 * v);
            w[v] = LowNibbles(packed);
            w[v + kVectors / 2] = HighNibbles(packed);
        }
    }
    static IVec Dot(IVec sum, const Bytes& w, const std::int8_t* x) { return DotSmall(sum, w, x); }
};

struct Q4_0 : Nibbles {
    static constexpr int kNumScales = 1;
    static constexpr int kWeightBias = 8;
    static IVec Start(std::int32_t correction) { return ISet(correction); }
};

struct Q4_1 : Nibbles {
    static constexpr int kNumScales = 2;  // step, minimum
    static constexpr int kWeightBias = 0;
    static IVec Start(std::int32_t) { return ISet(0); }
};

struct Q8_0 {
    static constexpr int kQuantBytes = 32 * kTileRows;
    static constexpr int kNumScales = 1;
    static constexpr int kWeightBias = 128;
    static void Unpack(const std::uint8_t* quants, Bytes w[kVectors]) {
        for (int v = 0; v < kVectors; ++v) w[v] = LoadBytes(quants + 64 * v);
    }
    static IVec Dot(IVec sum, const Bytes& w, const std::int8_t* x) { return DotBiased(sum, w, x); }
    static IVec Start(std::int32_t correction) { return BiasedStart(correction); }
};

template <class F>
constexpr int kScaleBytes = 2 * kTileRows * F::kNumScales;
template <class F>
constexpr int kTileBlockBytes = kScaleBytes<F> + F::kQuantBytes;

// How far ahead of its use a matrix-vector product asks for its weights.
constexpr int kPrefetchBytes = 3072;

// The products of one tile with R rows from `row` of a group. The order of additions is the same
// for every R.
template <class F, int R>
inline void TileTimesRows(const std::uint8_t* tile, const XBlock* x, int num_blocks, int row,
                          Vec y[R]) {
    for (int r = 0; r < R; ++r) y[r] = Zero();
    for (int b = 0; b < num_blocks; ++b, tile += kTileBlockBytes<F>, ++x) {
        if constexpr (R <= 2) {
            for (int at = 0; at < kTileBlockBytes<F>; at += 64)
                Prefetch(tile + kPrefetchBytes + at);
        }
        Bytes w[kVectors];
        F::Unpack(tile + kScaleBytes<F>, w);
        const Vec step = Load(reinterpret_cast<const Half*>(tile));
        for (int r = 0; r < R; ++r) {
            IVec high = ISet(0);
            IVec low = F::Start(x->start[row + r]);
            for (int v = 0; v < kVectors; ++v) {
                high = F::Dot(high, w[v], x->high[row + r] + 4 * v);
                low = F::Dot(low, w[v], x->low[row + r] + 4 * v);
            }
            y[r] = Fma(Mul(ToFloats(Join(high, low)), step), Set(x->step[row + r]), y[r]);
        }
        if constexpr (F::kNumScales == 2) {
            const Vec minimum = Load(reinterpret_cast<const Half*>(tile + 2 * kTileRows));
            for (int r = 0; r < R; ++r) y[r] = Fma(minimum, Set(x->step_sum[row + r]), y[r]);
        }
    }
}

struct Output {
    float* y;           // first element of the tile's columns in the group's first row
    const float* bias;  // of the tile's columns, or null
    std::int64_t stride;
    int num_columns;
};

template <class F, int R>
inline void TileRows(const std::uint8_t* tile, const XBlock* x, int num_blocks, int row,
                     const Output& out) {
    Vec y[R];
    TileTimesRows<F, R>(tile, x, num_blocks, row, y);
    for (int r = 0; r < R; ++r) {
        float* to = out.y + (row + r) * out.stride;
        if (out.num_columns == kTileRows) {
            Store(to, out.bias == nullptr ? y[r] : Add(y[r], Load(out.bias)));
        } else {
            if (out.bias != nullptr) y[r] = Add(y[r], LoadN(out.bias, out.num_columns));
            StoreN(to, y[r], out.num_columns);
        }
    }
}

// All rows of a group, in the largest pieces that the registers hold.
template <class F>
inline void TileGroup(const std::uint8_t* tile, const XBlock* x, int num_blocks, int num_rows,
                      const Output& out) {
    int row = 0;
    if constexpr (kMaxTileRows >= 16) {
        for (; num_rows - row >= 16; row += 16) TileRows<F, 16>(tile, x, num_blocks, row, out);
        for (; num_rows - row >= 8; row += 8) TileRows<F, 8>(tile, x, num_blocks, row, out);
    }
    for (; num_rows - row >= 4; row += 4) TileRows<F, 4>(tile, x, num_blocks, row, out);
    for (; num_rows - row >= 2; row += 2) TileRows<F, 2>(tile, x, num_blocks, row, out);
    for (; num_rows - row >= 1; row += 1) TileRows<F, 1>(tile, x, num_blocks, row, out);
}

inline void RoundRow(const float* x, XBlock* blocks, int num_blocks, int row, int weight_bias) {
    for (int b = 0; b < num_blocks; ++b, x += kBlockElements) {
        const Vec magnitude = Max(Abs(Load(x)), Abs(Load(x + kLanes)));
        const float most = MaxLane(magnitude);
        // Below this, kMaxQuant / most overflows; such a block counts as zero.
        const bool is_tiny = !(most > 1e-30F);
        const float inverse = is_tiny ? 0.0F : kMaxQuant / most;
        std::int8_t* high = blocks[b].high[row];
        std::int8_t* low = blocks[b].low[row];
        const std::int32_t sum = RoundToInt15(x, inverse, high, low) +
                                 RoundToInt15(x + kLanes, inverse, high + kLanes, low + kLanes);
        const float step = is_tiny ? 0.0F : most / kMaxQuant;
        blocks[b].step[row] = step;
        blocks[b].step_sum[row] = step * static_cast<float>(sum);
        blocks[b].start[row] = -weight_bias * sum;
    }
}

template <class F>
inline XBlock* RoundActivations(const LinearArgs& a, Worker& worker) {
    const int num_blocks = static_cast<int>(a.k / kBlockElements);
    auto* x_blocks =
        reinterpret_cast<XBlock*>(static_cast<std::uint8_t*>(a.scratch) + TailBytes(a));
    const bool is_private = RoundsPrivately(a);
    if (is_private)
        x_blocks += worker.index() * (XBytes(a) / static_cast<std::int64_t>(sizeof(XBlock)));
    const std::int64_t step = is_private ? 1 : worker.count();
    for (std::int64_t t = is_private ? 0 : worker.index(); t < a.num_rows; t += step) {
        RoundRow(a.x + t * a.x_stride, x_blocks + t / kGroupRows * num_blocks, num_blocks,
                 static_cast<int>(t % kGroupRows), F::kWeightBias);
    }
    if (!is_private) worker.Sync();
    return x_blocks;
}

// The rows after the last full tile, in layout rows, as a tile whose other rows are zero.
template <class F>
inline void GatherTail(const LinearArgs& a, std::uint8_t* tile) {
    const int num_rows = static_cast<int>(a.n % kTileRows);
    const int num_blocks = static_cast<int>(a.k / kBlockElements);
    constexpr int kRowScaleBytes = kScaleBytes<F> / kTileRows;
    constexpr int kRowQuantBytes = F::kQuantBytes / kTileRows;
    constexpr std::uint8_t kFlip = F::kWeightBias == 128 ? 0x80 : 0;
    std::memset(tile, 0, static_cast<std::size_t>(num_blocks) * kTileBlockBytes<F>);
    const auto* rows =
        static_cast<const std::uint8_t*>(a.weight) + (a.n - num_rows) * RowBytes(a.format, a.k);
    for (int r = 0; r < num_rows; ++r) {
        for (int b = 0; b < num_blocks; ++b) {
            std::uint8_t* out = tile + b * kTileBlockBytes<F>;
            for (int s = 0; s < F::kNumScales; ++s) {
                std::memcpy(out + 2 * (s * kTileRows + r), rows + 2 * s, 2);
            }
            for (int i = 0; i < kRowQuantBytes; ++i) {
                out[kScaleBytes<F> + i / 4 * 64 + 4 * r + i % 4] =
                    static_cast<std::uint8_t>(rows[kRowScaleBytes + i] ^ kFlip);
            }
            rows += kRowScaleBytes + kRowQuantBytes;
        }
    }
}

template <class F>
inline void QuantizedProduct(const LinearArgs& a, Worker& worker) {
    const XBlock* x_blocks = RoundActivations<F>(a, worker);
    const int num_blocks = static_cast<int>(a.k / kBlockElements);
    const std::int64_t tile_bytes = kTileRows * RowBytes(a.format, a.k);
    const std::int64_t num_tiles = (a.n + kTileRows - 1) / kTileRows;
    const std::int64_t num_chunks = Least(num_tiles, std::int64_t{8} * worker.count());
    // Rows whose rounded activations fit the second-level cache beside the weights.
    const std::int64_t span_groups = Most<std::int64_t>(
        1, (512 << 10) / (num_blocks * static_cast<std::int64_t>(sizeof(XBlock))));
    for (std::int64_t chunk = worker.Next(); chunk < num_chunks; chunk = worker.Next()) {
        const std::int64_t first = num_tiles * chunk / num_chunks;
        const std::int64_t last = num_tiles * (chunk + 1) / num_chunks;
        for (std::int64_t span = 0; span < NumGroups(a); span += span_groups) {
            const std::int64_t span_end = Least(NumGroups(a), span + span_groups);
            for (std::int64_t t = first; t < last; ++t) {
                const std::int64_t column = t * kTileRows;
                const auto* tile = static_cast<const std::uint8_t*>(a.weight) + t * tile_bytes;
                const int num_columns =
                    static_cast<int>(Least<std::int64_t>(kTileRows, a.n - column));
                if (num_columns < kTileRows) {
                    // Only the worker of the last chunk comes here.
                    GatherTail<F>(a, static_cast<std::uint8_t*>(a.scratch));
                    tile = static_cast<const std::uint8_t*>(a.scratch);
                }
                for (std::int64_t g = span; g < span_end; ++g) {
                    const std::int64_t row = g * kGroupRows;
                    const Output out{a.y + row * a.n + column,
                                     a.bias == nullptr ? nullptr : a.bias + column, a.n,
                                     num_columns};
                    TileGroup<F>(
                        tile, x_blocks + g * num_blocks, num_blocks,
                        static_cast<int>(Least<std::int64_t>(kGroupRows, a.num_rows - row)), out);
                }
            }
        }
    }
}

inline void ProductQ4_0(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q4_0>(a, worker); }
inline void ProductQ4_1(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q4_1>(a, worker); }
inline void ProductQ8_0(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q8_0>(a, worker); }
