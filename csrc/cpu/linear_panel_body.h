// SPDX-License-Identifier: Apache-2.0
// The product for many rows. Two tiles at a time are unpacked into a panel, over which all rows
// pass; each output has the whole sums and the order of float additions of TileTimesRows. See
// linear_quantized_body.h.

// Rows whose sums the registers hold for the columns of a panel.
constexpr int kPanelRows = kMaxTileRows >= 16 ? 5 : 2;
// How many blocks ahead activations are asked for: a panel fills the first-level cache before the
// rows after these would come to theirs.
constexpr int kPanelAhead = 4;

// Sums of products of weights and activations, of two pairs of each lane at a time, one by one.
struct StraightPairs {
    static IVec Cross(IVec cross, const Pairs&, const Pairs&) { return cross; }
    static IVec Start(const std::int32_t*, std::int32_t) { return ISet(0); }
    static IVec Dot(IVec sum, const Pairs& even, const Pairs& odd, const std::int16_t* x) {
        return DotPairs(DotPairs(sum, even, x), odd, x + 2);
    }
};

// Registers of weights, of which a half's sums are made.
template <class F>
constexpr int kHalfVectors = kVectors / F::kHalves;

template <class F, class By>
inline void UnpackPanel(const std::uint8_t* tile, int first_block, int num_blocks, int which,
                        PanelBlock* panel) {
    tile += first_block / F::kBlocks * kTileBlockBytes<F>;
    for (int b = 0; b < num_blocks; ++b, ++panel) {
        const int block = (first_block + b) % F::kBlocks;
        Bytes w[kVectors];
        F::Unpack(tile, block, w);
        for (int half = 0; half < F::kHalves; ++half) {
            IVec cross = ISet(0);
            for (int i = 0; i < kHalfVectors<F>; ++i) {
                const int v = half * kHalfVectors<F> + i;
                const Pairs even = EvenBytes(w[v], F::kWeightBias);
                const Pairs odd = OddBytes(w[v], F::kWeightBias);
                StorePairs(panel->weights[which][2 * v], even);
                StorePairs(panel->weights[which][2 * v + 1], odd);
                cross = By::Cross(cross, even, odd);
            }
            Store(panel->cross[half][which], cross);
            Store(panel->step[half][which], F::Step(tile, block, half));
            if constexpr (F::kHasMinimum) {
                Store(panel->minimum[half][which], F::Minimum(tile, block, half));
            }
        }
        if (block == F::kBlocks - 1) tile += kTileBlockBytes<F>;
    }
}

// Adds the products of R rows, `stride` blocks apart, with C tiles of the panel to y.
template <class F, class By, int R, int C>
inline void PanelTimesRows(const PanelBlock* panel, const XPairBlock* x, std::int64_t stride,
                           int num_blocks, Vec y[R][C]) {
    for (int b = 0; b < num_blocks; ++b, ++panel, ++x) {
        for (int r = 0; r < R; ++r) Prefetch(x + r * stride + kPanelAhead);
        for (int half = 0; half < F::kHalves; ++half) {
            IVec sum[R][C];
            for (int r = 0; r < R; ++r) {
                const std::int32_t start = x[r * stride].start[half];
                for (int c = 0; c < C; ++c) sum[r][c] = By::Start(panel->cross[half][c], start);
            }
#pragma GCC unroll 8
            for (int i = 0; i < kHalfVectors<F>; ++i) {
                const int v = half * kHalfVectors<F> + i;
                Pairs even[C], odd[C];
                for (int c = 0; c < C; ++c) {
                    even[c] = LoadPairs(panel->weights[c][2 * v]);
                    odd[c] = LoadPairs(panel->weights[c][2 * v + 1]);
                }
                for (int r = 0; r < R; ++r) {
                    const std::int16_t* four = x[r * stride].pairs + 4 * v;
                    for (int c = 0; c < C; ++c) {
                        sum[r][c] = By::Dot(sum[r][c], even[c], odd[c], four);
                    }
                }
            }
            for (int c = 0; c < C; ++c) {
                const Vec step = Load(panel->step[half][c]);
                for (int r = 0; r < R; ++r) {
                    const Vec x_step = Set(x[r * stride].step);
                    y[r][c] = Fma(Mul(ToFloats(sum[r][c]), step), x_step, y[r][c]);
                }
                if constexpr (F::kHasMinimum) {
                    const Vec minimum = Load(panel->minimum[half][c]);
                    for (int r = 0; r < R; ++r) {
                        y[r][c] = Fma(minimum, Set(x[r * stride].step_sum[half]), y[r][c]);
                    }
                }
            }
        }
    }
}

// Some of a product: the panel's columns, for blocks of k from `first_block` on.
struct PanelPass {
    const LinearArgs& args;
    const PanelBlock* panel;
    const XPairBlock* x;  // of row 0
    std::int64_t column;
    int first_block;
    int num_blocks;

    std::int64_t Stride() const { return args.k / kBlockElements; }
    // Between the tiles of a panel: neighbours, or a gate and its up.
    std::int64_t ColumnStride() const { return args.is_gated ? args.n / 2 : kTileRows; }
};

template <class F, class By, int R, int C>
inline void PanelPiece(const PanelPass& pass, std::int64_t row) {
    Vec y[R][C];
    for (int c = 0; c < C; ++c) {
        const Output out(pass.args, pass.column + c * kTileRows);
        for (int r = 0; r < R; ++r) y[r][c] = pass.first_block == 0 ? Zero() : out.Read(row + r);
    }
    PanelTimesRows<F, By, R, C>(pass.panel, pass.x + row * pass.Stride() + pass.first_block,
                                pass.Stride(), pass.num_blocks, y);
    const bool is_last = pass.first_block + pass.num_blocks == pass.Stride();
    for (int c = 0; c < C && is_last; ++c) {
        const Output out(pass.args, pass.column + c * pass.ColumnStride());
        for (int r = 0; r < R; ++r) y[r][c] = out.WithBias(y[r][c]);
    }
    if (C == 2 && pass.args.is_gated) {
        const Output out(pass.args, pass.column);
        for (int r = 0; r < R; ++r) out.Write(row + r, Gated(y[r][0], y[r][C - 1]));
        return;
    }
    for (int c = 0; c < C; ++c) {
        const Output out(pass.args, pass.column + c * kTileRows);
        for (int r = 0; r < R; ++r) out.Write(row + r, y[r][c]);
    }
}

template <class F, class By, int C>
inline void PanelSpan(const PanelPass& pass, std::int64_t first, std::int64_t last) {
    std::int64_t row = first;
    for (; last - row >= kPanelRows; row += kPanelRows) PanelPiece<F, By, kPanelRows, C>(pass, row);
    if constexpr (kPanelRows > 2) {
        for (; last - row >= 2; row += 2) PanelPiece<F, By, 2, C>(pass, row);
    }
    for (; last - row >= 1; row += 1) PanelPiece<F, By, 1, C>(pass, row);
}

// Items are spans of rows, whose activations fit the second-level cache beside a panel, by pairs of
// tiles.
template <class F, class By>
inline void PanelProduct(const LinearArgs& a, Worker& worker) {
    const auto* x = static_cast<const XPairBlock*>(a.scratch);
    auto* panel = reinterpret_cast<PanelBlock*>(WorkerScratch(a, worker));
    std::uint8_t* tail = WorkerScratch(a, worker) + PanelBytes(a);
    const int num_blocks = static_cast<int>(a.k / kBlockElements);
    const int panel_blocks = static_cast<int>(Least<std::int64_t>(PanelBlocks(a), num_blocks));
    const std::int64_t row_bytes = panel_blocks * static_cast<std::int64_t>(sizeof(XPairBlock));
    const std::int64_t fitting = (384 << 10) / row_bytes / kPanelRows * kPanelRows;
    const std::int64_t span_rows = Least(a.num_rows, Most<std::int64_t>(kPanelRows, fitting));
    const std::int64_t num_spans = (a.num_rows + span_rows - 1) / span_rows;
    const std::int64_t num_tiles = (a.OutputColumns() + kTileRows - 1) / kTileRows;
    const std::int64_t tiles_each = a.is_gated ? 1 : kPanelTiles;
    const std::int64_t num_panels = (num_tiles + tiles_each - 1) / tiles_each;
    for (std::int64_t i = worker.Next(); i < num_spans * num_panels; i = worker.Next()) {
        const std::int64_t first = i / num_panels * span_rows;
        const std::int64_t last = Least(a.num_rows, first + span_rows);
        const std::int64_t t = i % num_panels * tiles_each;
        const std::int64_t other = a.is_gated ? t + num_tiles : t + 1;
        const bool is_pair = a.is_gated || other < num_tiles;
        for (int b = 0; b < num_blocks; b += panel_blocks) {
            const int count = Least(panel_blocks, num_blocks - b);
            UnpackPanel<F, By>(FindTile<F>(a, t, tail), b, count, 0, panel);
            if (is_pair) UnpackPanel<F, By>(FindTile<F>(a, other, tail), b, count, 1, panel);
            const PanelPass pass{a, panel, x, t * kTileRows, b, count};
            if (is_pair) {
                PanelSpan<F, By, kPanelTiles>(pass, first, last);
            } else {
                PanelSpan<F, By, 1>(pass, first, last);
            }
        }
    }
}

// Of a half's activations: see CrossedPairs.
template <class F>
inline std::int32_t CrossStart(const std::int16_t* pairs, int half) {
    constexpr int kCount = 4 * kHalfVectors<F>;
    std::uint32_t start = 0;  // may wrap
    for (const std::int16_t* q = pairs + half * kCount; q < pairs + (half + 1) * kCount; q += 4) {
        start -= static_cast<std::uint32_t>(q[0] * q[2] + q[1] * q[3]);
    }
    return static_cast<std::int32_t>(start);
}

template <class F>
inline void RoundRow(const LinearArgs& a, std::int64_t row, XPairBlock* blocks) {
    const float* x = a.x + row * a.x_stride;
    const std::int64_t num_blocks = a.k / kBlockElements;
    XPairBlock* block = blocks + row * num_blocks;
    for (std::int64_t b = 0; b < num_blocks; ++b, ++block, x += kBlockElements) {
        const Rounding by = RoundingOf(x);
        std::int32_t sums[2] = {RoundToPairs(by.x, by.inverse, block->pairs),
                                RoundToPairs(by.x + kLanes, by.inverse, block->pairs + kLanes)};
        if constexpr (F::kHalves == 1) sums[0] += sums[1];
        block->step = by.step;
        for (int half = 0; half < F::kHalves; ++half) {
            if constexpr (kMayCross) block->start[half] = CrossStart<F>(block->pairs, half);
            block->step_sum[half] = by.step * static_cast<float>(sums[half]);
        }
    }
}

template <class F, class Block>
inline void RoundRows(const LinearArgs& a, Worker& worker) {
    auto* blocks = static_cast<Block*>(a.scratch);
    for (std::int64_t at = worker.Next() * kRowsTogether; at < a.num_rows;
         at = worker.Next() * kRowsTogether) {
        const std::int64_t last = Least(a.num_rows, at + kRowsTogether);
        for (std::int64_t row = at; row < last; ++row) RoundRow<F>(a, row, blocks);
    }
}

template <class F>
inline void RunPhase(const LinearJob& job, Worker& worker) {
    const LinearArgs& a = job.args;
    if (UsesPanels(a)) {
        if (job.phase == LinearPhase::kRound) return RoundRows<F, XPairBlock>(a, worker);
        if constexpr (kMayCross) {
            if (AddsBesideProducts()) return PanelProduct<F, CrossedPairs>(a, worker);
        }
        return PanelProduct<F, StraightPairs>(a, worker);
    }
    if (job.phase == LinearPhase::kRound) return RoundRows<F, XBlock>(a, worker);
    return TileProduct<F>(job, worker);
}
