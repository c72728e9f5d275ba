// SPDX-License-Identifier: Apache-2.0
// The product for many rows. Two tiles at a time are unpacked into a panel, over which all rows
// pass; each output has the whole sums and the order of float additions of TileTimesRows. See
// linear_quantized_body.h.

// Rows whose sums the registers hold, and for how many tiles of a panel at a time.
constexpr int kPanelRows = kMaxTileRows >= 16 ? 5 : 4;
constexpr int kTilesAtOnce = kMaxTileRows >= 16 ? kPanelTiles : 1;
// How many blocks ahead activations are asked for: a panel fills the first-level cache before the
// rows after these would come to theirs.
constexpr int kPanelAhead = 4;
// Of activations that share a panel (less, and unpacking it would be seen), and the fewest rows for
// which workers unpack one each.
constexpr std::int64_t kSpanBytes = 1 << 20;
constexpr std::int64_t kMinSpanRows = 128;

// How a panel's sums are made: in kGroups steps, each of two registers of weights of a tile and of
// eight bytes of activations.
template <class F, class By>
struct PairSums {
    using X = XPairBlock;
    using Panel = PairPanelBlock;
    using Weights = Pairs;
    static constexpr int kGroups = kVectors;
    static void Unpack(const Bytes w[kVectors], int g, Weights two[2]) {
        two[0] = EvenBytes(w[g], F::kWeightBias);
        two[1] = OddBytes(w[g], F::kWeightBias);
    }
    static Weights Load(const std::uint8_t* p) { return LoadPairs(p); }
    static void Store(std::uint8_t* p, const Weights& w) { StorePairs(p, w); }
    static IVec Cross(IVec cross, int g, const Weights two[2]) {
        return By::Crosses(g) ? By::Cross(cross, two[0], two[1]) : cross;
    }
    static IVec Start(const std::int32_t* cross, const X& x, int half) {
        return By::Start(cross, x.start[half]);
    }
    static IVec Dot(IVec sum, int g, const Weights& first, const Weights& second, const X& x) {
        return DotFour<By>(sum, g, first, second, x.pairs + 4 * g);
    }
};

// Over activations of a byte, for formats that round to one.
template <class F>
struct ByteSums {
    using X = XByteBlock;
    using Panel = BytePanelBlock;
    using Weights = Bytes;
    static constexpr int kGroups = kVectors / 2;
    static void Unpack(const Bytes w[kVectors], int g, Weights two[2]) {
        two[0] = w[2 * g];
        two[1] = w[2 * g + 1];
    }
    static Weights Load(const std::uint8_t* p) { return LoadBytes(p); }
    static void Store(std::uint8_t* p, const Weights& w) { StoreBytes(p, w); }
    static IVec Cross(IVec cross, int, const Weights*) { return cross; }
    static IVec Start(const std::int32_t*, const X& x, int half) { return F::Start(x.start[half]); }
    static IVec Dot(IVec sum, int g, const Weights& first, const Weights& second, const X& x) {
        return F::Dot(F::Dot(sum, first, x.quants + 8 * g), second, x.quants + 8 * g + 4);
    }
};

template <class F, class By>
struct CrossedByteSums : ByteSums<F> {
    using Straight = ByteSums<F>;
    using typename Straight::Weights;
    using typename Straight::X;
    static void Unpack(const Bytes w[kVectors], int g, Weights two[2]) {
        Straight::Unpack(w, g, two);
        if (!By::Crosses(g)) return;
        two[0] = By::First(two[0], F::kByteCenter);
        two[1] = By::Second(two[1], F::kByteCenter);
    }
    static IVec Cross(IVec cross, int g, const Weights two[2]) {
        return By::Crosses(g) ? By::Cross(cross, two[0], two[1]) : cross;
    }
    static IVec Start(const std::int32_t* cross, const X& x, int half) {
        return By::Start(cross, x.crossed_start[half]);
    }
    static IVec Dot(IVec sum, int g, const Weights& first, const Weights& second, const X& x) {
        return By::Crosses(g) ? By::Dot(sum, first, second, x.quants + 8 * g)
                              : Straight::Dot(sum, g, first, second, x);
    }
};

template <class F, class Sums>
inline void UnpackPanel(const std::uint8_t* tile, int first_block, int num_blocks, int which,
                        typename Sums::Panel* panel) {
    constexpr int kHalfGroups = Sums::kGroups / F::kHalves;
    constexpr int kPrefetchShare = static_cast<int>(kTileBlockBytes<F> / F::kBlocks);
    tile += first_block / F::kBlocks * kTileBlockBytes<F>;
    for (int b = 0; b < num_blocks; ++b, ++panel) {
        const int block = (first_block + b) % F::kBlocks;
        const std::uint8_t* ahead = tile + kPrefetchBytes + block * kPrefetchShare;
        for (int at = 0; at < kPrefetchShare; at += 64) Prefetch(ahead + at);
        Bytes w[kVectors];
        F::Unpack(tile, block, w);
        for (int half = 0; half < F::kHalves; ++half) {
            IVec cross = ISet(0);
            for (int i = 0; i < kHalfGroups; ++i) {
                const int g = half * kHalfGroups + i;
                typename Sums::Weights two[2];
                Sums::Unpack(w, g, two);
                Sums::Store(panel->weights[which][2 * g], two[0]);
                Sums::Store(panel->weights[which][2 * g + 1], two[1]);
                cross = Sums::Cross(cross, g, two);
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

// Adds the products of R rows, `stride` blocks apart, with C tiles of the panel, from the
// `tile`-th, to y.
template <class F, class Sums, int R, int C>
inline void PanelTimesRows(const typename Sums::Panel* panel, int tile, const typename Sums::X* x,
                           std::int64_t stride, int num_blocks, Vec out[C][R]) {
    constexpr int kHalfGroups = Sums::kGroups / F::kHalves;
    Vec y[C][R];  // no bytes may alias it
    for (int c = 0; c < C; ++c) {
        for (int r = 0; r < R; ++r) y[c][r] = out[c][r];
    }
    for (int b = 0; b < num_blocks; ++b, ++panel, ++x) {
        for (int r = 0; r < R; ++r) Prefetch(x + r * stride + kPanelAhead);
        for (int half = 0; half < F::kHalves; ++half) {
            IVec sum[R][C];
            for (int r = 0; r < R; ++r) {
                for (int c = 0; c < C; ++c) {
                    sum[r][c] = Sums::Start(panel->cross[half][tile + c], x[r * stride], half);
                }
            }
#pragma GCC unroll 8
            for (int i = 0; i < kHalfGroups; ++i) {
                const int g = half * kHalfGroups + i;
                typename Sums::Weights first[C], second[C];
                for (int c = 0; c < C; ++c) {
                    first[c] = Sums::Load(panel->weights[tile + c][2 * g]);
                    second[c] = Sums::Load(panel->weights[tile + c][2 * g + 1]);
                }
                for (int r = 0; r < R; ++r) {
                    for (int c = 0; c < C; ++c) {
                        sum[r][c] = Sums::Dot(sum[r][c], g, first[c], second[c], x[r * stride]);
                    }
                }
            }
            for (int c = 0; c < C; ++c) {
                const Vec step = Load(panel->step[half][tile + c]);
                for (int r = 0; r < R; ++r) {
                    const Vec x_step = Set(x[r * stride].step);
                    y[c][r] = Fma(Mul(ToFloats(sum[r][c]), step), x_step, y[c][r]);
                }
                if constexpr (F::kHasMinimum) {
                    const Vec minimum = Load(panel->minimum[half][tile + c]);
                    for (int r = 0; r < R; ++r) {
                        y[c][r] = Fma(minimum, Set(x[r * stride].step_sum[half]), y[c][r]);
                    }
                }
            }
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int r = 0; r < R; ++r) out[c][r] = y[c][r];
    }
}

// Some of a product: the panel's columns, for blocks of k from `first_block` on.
template <class Sums>
struct PanelPass {
    const LinearArgs& args;
    const typename Sums::Panel* panel;
    const typename Sums::X* x;  // of row 0
    std::int64_t column;
    int first_block;
    int num_blocks;

    std::int64_t Stride() const { return args.k / kBlockElements; }
    // Between the tiles of a panel: neighbours, or a gate and its up.
    std::int64_t ColumnStride() const { return args.is_gated ? args.n / 2 : kTileRows; }
};

// As WriteRows, of what an output has so far.
template <int R>
inline void ReadRows(const Output& out, std::int64_t row, Vec y[R]) {
    const float* from = out.At(row);
    const std::int64_t stride = out.args.OutputColumns();
    if (out.count == kTileRows) {
        for (int r = 0; r < R; ++r) y[r] = Load(from + r * stride);
    } else {
        for (int r = 0; r < R; ++r) y[r] = LoadN(from + r * stride, out.count);
    }
}

template <class F, class Sums, int R, int C>
inline void PanelPiece(const PanelPass<Sums>& pass, std::int64_t row) {
    Vec y[C][R];
    for (int c = 0; c < C; ++c) {
        if (pass.first_block > 0) {
            ReadRows<R>(Output(pass.args, pass.column + c * kTileRows), row, y[c]);
        } else {
            for (int r = 0; r < R; ++r) y[c][r] = Zero();
        }
    }
    constexpr int kTogether = C < kTilesAtOnce ? C : kTilesAtOnce;
    for (int c = 0; c < C; c += kTogether) {
        PanelTimesRows<F, Sums, R, kTogether>(pass.panel, c,
                                              pass.x + row * pass.Stride() + pass.first_block,
                                              pass.Stride(), pass.num_blocks, y + c);
    }
    const bool is_last = pass.first_block + pass.num_blocks == pass.Stride();
    if (pass.args.bias != nullptr && is_last) {
        for (int c = 0; c < C; ++c) {
            const Output out(pass.args, pass.column + c * pass.ColumnStride());
            for (int r = 0; r < R; ++r) y[c][r] = out.WithBias(y[c][r]);
        }
    }
    if (C == 2 && pass.args.is_gated) {
        for (int r = 0; r < R; ++r) y[0][r] = Gated(y[0][r], y[C - 1][r]);
        return WriteRows<R>(Output(pass.args, pass.column), row, y[0]);
    }
    for (int c = 0; c < C; ++c) {
        WriteRows<R>(Output(pass.args, pass.column + c * kTileRows), row, y[c]);
    }
}

template <class F, class Sums, int C>
inline void PanelSpan(const PanelPass<Sums>& pass, std::int64_t first, std::int64_t last) {
    std::int64_t row = first;
    for (; last - row >= kPanelRows; row += kPanelRows) {
        PanelPiece<F, Sums, kPanelRows, C>(pass, row);
    }
    if constexpr (kPanelRows > 2) {
        for (; last - row >= 2; row += 2) PanelPiece<F, Sums, 2, C>(pass, row);
    }
    for (; last - row >= 1; row += 1) PanelPiece<F, Sums, 1, C>(pass, row);
}

// Rows that a worker multiplies with a panel before it unpacks the next; workers have as many rows
// each.
inline std::int64_t SpanRows(const LinearArgs& a, std::int64_t row_bytes, int num_workers) {
    const std::int64_t most =
        Least(a.num_rows, Most<std::int64_t>(kPanelRows, kSpanBytes / row_bytes));
    const std::int64_t workers =
        Least<std::int64_t>(num_workers, Most<std::int64_t>(1, a.num_rows / kMinSpanRows));
    const std::int64_t num_spans = (a.num_rows + most - 1) / most;
    const std::int64_t even = (num_spans + workers - 1) / workers * workers;
    return (a.num_rows + even - 1) / even;
}

// Items are spans of rows by pairs of tiles, all of a span together: a worker keeps to the rows
// that it has rounded and that it will read next, which may be far from another's core.
template <class F, class Sums>
inline void PanelProduct(const LinearArgs& a, Worker& worker) {
    const auto* x = static_cast<const typename Sums::X*>(a.scratch);
    auto* panel = reinterpret_cast<typename Sums::Panel*>(WorkerScratch(a, worker));
    std::uint8_t* tail = WorkerScratch(a, worker) + PanelBytes(a);
    const int num_blocks = static_cast<int>(a.k / kBlockElements);
    const int panel_blocks = static_cast<int>(Least<std::int64_t>(PanelBlocks(a), num_blocks));
    const std::int64_t row_bytes = panel_blocks * std::int64_t{sizeof(typename Sums::X)};
    const std::int64_t span_rows = SpanRows(a, row_bytes, worker.count());
    const std::int64_t num_spans = (a.num_rows + span_rows - 1) / span_rows;
    const std::int64_t num_tiles = (a.OutputColumns() + kTileRows - 1) / kTileRows;
    const std::int64_t tiles_each = a.is_gated ? 1 : kPanelTiles;
    const std::int64_t num_panels = (num_tiles + tiles_each - 1) / tiles_each;
    for (;;) {
        const Piece piece = worker.Take(num_spans * num_panels);
        if (piece.first == piece.last) return;
        for (std::int64_t i = piece.first; i < piece.last; ++i) {
            const std::int64_t first = i / num_panels * span_rows;
            const std::int64_t last = Least(a.num_rows, first + span_rows);
            const std::int64_t t = i % num_panels * tiles_each;
            const std::int64_t other = a.is_gated ? t + num_tiles : t + 1;
            const bool is_pair = a.is_gated || other < num_tiles;
            for (int b = 0; b < num_blocks; b += panel_blocks) {
                const int count = Least(panel_blocks, num_blocks - b);
                UnpackPanel<F, Sums>(FindTile<F>(a, t, tail), b, count, 0, panel);
                if (is_pair) UnpackPanel<F, Sums>(FindTile<F>(a, other, tail), b, count, 1, panel);
                const PanelPass<Sums> pass{a, panel, x, t * kTileRows, b, count};
                if (is_pair) {
                    PanelSpan<F, Sums, kPanelTiles>(pass, first, last);
                } else {
                    PanelSpan<F, Sums, 1>(pass, first, last);
                }
            }
        }
    }
}

template <class F, class Block>
inline void RoundRows(const LinearArgs& a, Worker& worker) {
    auto* blocks = static_cast<Block*>(a.scratch);
    for (;;) {
        const Piece rows = worker.TakeRows(a.num_rows);
        if (rows.first >= rows.last) return;
        for (std::int64_t row = rows.first; row < rows.last; ++row) RoundRow<F>(a, row, blocks);
    }
}

// A phase of a product whose activations are rounded to bytes.
template <class F>
inline void RunBytePhase(const LinearJob& job, Worker& worker) {
    const LinearArgs& a = job.args;
    if (job.phase == LinearPhase::kRound) return RoundRows<F, XByteBlock>(a, worker);
    if (!UsesPanels(a)) return TileProduct<F, XByteBlock>(job, worker);
    if constexpr (kMayCross && F::kByteCenter > 0) {
        if (AddsBesideProducts()) {
            return PanelProduct<F, CrossedByteSums<F, CrossedBytes>>(a, worker);
        }
    }
    return PanelProduct<F, ByteSums<F>>(a, worker);
}

template <class F>
inline void RunPhase(const LinearJob& job, Worker& worker) {
    const LinearArgs& a = job.args;
    if constexpr (F::kByteCenter != kNoBytes) {
        if (a.rounds_to_bytes) return RunBytePhase<F>(job, worker);
    }
    if (UsesPanels(a)) {
        if (job.phase == LinearPhase::kRound) return RoundRows<F, XPairBlock>(a, worker);
        if constexpr (kMayCross) {
            if (AddsBesideProducts()) return PanelProduct<F, PairSums<F, CrossedPairs>>(a, worker);
        }
        return PanelProduct<F, PairSums<F, StraightPairs>>(a, worker);
    }
    if constexpr (kMayCross && F::kBlocks == 1) {  // others take as long to unpack as it saves
        if (a.num_rows >= kPairMinRows && AddsBesideProducts()) {
            if (job.phase == LinearPhase::kRound) return RoundRows<F, XPairBlock>(a, worker);
            return TileProduct<F, XPairBlock>(job, worker);
        }
    }
    if (job.phase == LinearPhase::kRound) return RoundRows<F, XBlock>(a, worker);
    return TileProduct<F, XBlock>(job, worker);
}
