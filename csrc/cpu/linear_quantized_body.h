// SPDX-License-Identifier: Apache-2.0
// A product of tiles with rounded activations, over a format F (linear_formats_*_body.h), which
// says how 32 weights of each of 16 rows become 8 registers of whole numbers (Unpack), where their
// sums start (Start) and what turns sums into floats (Step, Minimum).

template <class F>
constexpr std::int64_t kTileBlockBytes = kTileRows * LayoutOf(F::kFormat).Bytes();

// How far ahead of its use a product with few rows asks for its weights.
constexpr int kPrefetchBytes = 3072;

// Rows that the registers hold beside the weights and scales.
template <class F>
constexpr int kMaxRows = F::kHalves == 2 && kMaxTileRows > 8 ? 8 : kMaxTileRows;

// The products of one tile with R rows from `row` of a group. The order of additions is the same
// for every R.
template <class F, int R>
inline void TileTimesRows(const std::uint8_t* tile, const XBlock* x, int num_blocks, int row,
                          Vec y[R]) {
    constexpr int kHalfVectors = kVectors / F::kHalves;
    constexpr int kPrefetchShare = static_cast<int>(kTileBlockBytes<F> / F::kBlocks);
    for (int r = 0; r < R; ++r) y[r] = Zero();
    for (int b = 0; b < num_blocks; ++b, ++x) {
        const int block = b % F::kBlocks;
        if constexpr (R <= 8) {
            const std::uint8_t* ahead = tile + kPrefetchBytes + block * kPrefetchShare;
            for (int at = 0; at < kPrefetchShare; at += 64) Prefetch(ahead + at);
        }
        Bytes w[kVectors];
        F::Unpack(tile, block, w);
        for (int half = 0; half < F::kHalves; ++half) {
            const Vec step = F::Step(tile, block, half);
            const int first = half * kHalfVectors;
            for (int r = 0; r < R; ++r) {
                IVec high = ISet(0);
                IVec low = F::Start(x->start[half][row + r]);
                for (int v = first; v < first + kHalfVectors; ++v) {
                    high = F::Dot(high, w[v], x->high[row + r] + 4 * v);
                    low = F::Dot(low, w[v], x->low[row + r] + 4 * v);
                }
                y[r] = Fma(Mul(ToFloats(Join(high, low)), step), Set(x->step[row + r]), y[r]);
            }
            if constexpr (F::kHasMinimum) {
                const Vec minimum = F::Minimum(tile, block, half);
                for (int r = 0; r < R; ++r) {
                    y[r] = Fma(minimum, Set(x->step_sum[half][row + r]), y[r]);
                }
            }
        }
        if (block == F::kBlocks - 1) tile += kTileBlockBytes<F>;
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
    if constexpr (kMaxRows<F> >= 16) {
        for (; num_rows - row >= 16; row += 16) TileRows<F, 16>(tile, x, num_blocks, row, out);
    }
    if constexpr (kMaxRows<F> >= 8) {
        for (; num_rows - row >= 8; row += 8) TileRows<F, 8>(tile, x, num_blocks, row, out);
    }
    for (; num_rows - row >= 4; row += 4) TileRows<F, 4>(tile, x, num_blocks, row, out);
    for (; num_rows - row >= 1; row += 1) TileRows<F, 1>(tile, x, num_blocks, row, out);
}

template <class F>
inline void RoundRow(const float* x, XBlock* blocks, int num_blocks, int row) {
    for (int b = 0; b < num_blocks; ++b, x += kBlockElements) {
        const Vec magnitude = Max(Abs(Load(x)), Abs(Load(x + kLanes)));
        const float most = MaxLane(magnitude);
        // Below this, kMaxQuant / most overflows; such a block counts as zero.
        const bool is_tiny = !(most > 1e-30F);
        const float inverse = is_tiny ? 0.0F : kMaxQuant / most;
        std::int8_t* high = blocks[b].high[row];
        std::int8_t* low = blocks[b].low[row];
        std::int32_t sums[2] = {RoundToInt15(x, inverse, high, low),
                                RoundToInt15(x + kLanes, inverse, high + kLanes, low + kLanes)};
        if constexpr (F::kHalves == 1) sums[0] += sums[1];
        const float step = is_tiny ? 0.0F : most / kMaxQuant;
        blocks[b].step[row] = step;
        for (int half = 0; half < F::kHalves; ++half) {
            blocks[b].step_sum[half][row] = step * static_cast<float>(sums[half]);
            blocks[b].start[half][row] = -F::kWeightBias * sums[half];
        }
    }
}

// Where the rounded activations of a worker, or of all, are.
inline XBlock* RoundedActivations(const LinearArgs& a, const Worker& worker) {
    auto* x_blocks =
        reinterpret_cast<XBlock*>(static_cast<std::uint8_t*>(a.scratch) + TailBytes(a));
    if (!RoundsPrivately(a)) return x_blocks;
    return x_blocks + worker.index() * (XBytes(a) / static_cast<std::int64_t>(sizeof(XBlock)));
}

template <class F>
inline void RoundGroup(const LinearArgs& a, std::int64_t group, XBlock* x_blocks) {
    const int num_blocks = static_cast<int>(a.k / kBlockElements);
    const std::int64_t first = group * kGroupRows;
    const std::int64_t last = Least(a.num_rows, first + kGroupRows);
    for (std::int64_t t = first; t < last; ++t) {
        RoundRow<F>(a.x + t * a.x_stride, x_blocks + group * num_blocks, num_blocks,
                    static_cast<int>(t - first));
    }
}

// The rows after the last full tile, which are ordered blocks row after row, as a tile whose other
// rows are zero.
template <class F>
inline void GatherTail(const LinearArgs& a, std::uint8_t* tile) {
    constexpr BlockLayout kLayout = LayoutOf(F::kFormat);
    const int num_rows = static_cast<int>(a.n % kTileRows);
    const std::int64_t num_blocks = a.k / kLayout.num_elements;
    std::memset(tile, 0, static_cast<std::size_t>(num_blocks * kTileBlockBytes<F>));
    const auto* block = static_cast<const std::uint8_t*>(a.weight) +
                        (a.n - num_rows) * num_blocks * kLayout.Bytes();
    for (int r = 0; r < num_rows; ++r) {
        for (std::int64_t b = 0; b < num_blocks; ++b) {
            PutRow(kLayout, block, r, tile + b * kTileBlockBytes<F>);
            block += kLayout.Bytes();
        }
    }
}

template <class F>
inline void QuantizedProduct(const LinearArgs& a, Worker& worker) {
    XBlock* x_blocks = RoundedActivations(a, worker);
    if (RoundsPrivately(a)) {
        for (std::int64_t g = 0; g < NumGroups(a); ++g) RoundGroup<F>(a, g, x_blocks);
    }
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

template <class F>
inline void RunPhase(const LinearJob& job, Worker& worker) {
    if (job.phase == LinearPhase::kMultiply) return QuantizedProduct<F>(job.args, worker);
    XBlock* x_blocks = RoundedActivations(job.args, worker);
    const std::int64_t num_groups = NumGroups(job.args);
    for (std::int64_t g = worker.Next(); g < num_groups; g = worker.Next()) {
        RoundGroup<F>(job.args, g, x_blocks);
    }
}
